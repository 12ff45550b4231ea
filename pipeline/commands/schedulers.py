"""The commands that write files for schedulers: slurm, kuberay."""

import re
from pathlib import PurePosixPath
from typing import Annotated

import typer

from cluster.errors import UserError
from pipeline.commands.exit_codes import exit_codes
from pipeline.commands.run import Out, Overrides, Recipe
from pipeline.folder.user_files import refuse_url

_MAX_NODES = 10_000
_KUBERNETES_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?")

Nodes = Annotated[int, typer.Option("--nodes", metavar="N", min=1, max=_MAX_NODES, help="Nodes of the job.")]
GpusPerNode = Annotated[
    int,
    typer.Option("--gpus-per-node", metavar="G", min=0, max=64, help="GPUs of each node, one worker each."),
]


def slurm(
    recipe: Recipe,
    out: Out,
    nodes: Nodes,
    gpus_per_node: GpusPerNode = 0,
    overrides: Overrides = None,
    prep: Annotated[
        bool,
        typer.Option("--prep", help="Only prepare the corpus: an array of one-node jobs without GPUs."),
    ] = False,
) -> None:
    """Print a batch script for Slurm that runs a recipe.

    Ray runs on all nodes, permcode on the first. Before the time limit the run writes a checkpoint and the job goes
    back into the queue; after preemption or a lost node Slurm does that. The same file resumes the run.

    \b
    permcode slurm --recipe base --out runs/base --nodes 2 --gpus-per-node 4 > job.sbatch
    """
    with exit_codes(None, only_shows=True):
        from pipeline.schedulers.recipe import job_name, load_for_nodes
        from pipeline.schedulers.slurm import batch_script, prep_array_script

        refuse_url(out)
        if prep and gpus_per_node:
            raise UserError("--prep needs no GPUs: leave out --gpus-per-node")
        config = load_for_nodes(recipe, overrides or [], nodes, nodes, gpus_per_node)
        name = job_name(recipe)
        text = (
            prep_array_script(config, out, name, nodes)
            if prep
            else batch_script(config, out, name, nodes, gpus_per_node)
        )
        typer.echo(text, nl=False)


def kuberay(
    recipe: Recipe,
    out: Annotated[
        PurePosixPath,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="The run's folder below the volume's mount.",
            parser=PurePosixPath,
        ),
    ],
    nodes: Nodes,
    image: Annotated[
        str, typer.Option("--image", metavar="IMAGE", help="The image built from permcode's Dockerfile.")
    ],
    volume_claim: Annotated[
        str,
        typer.Option(
            "--volume-claim", metavar="NAME", help="A PersistentVolumeClaim that all nodes can mount."
        ),
    ],
    gpus_per_node: GpusPerNode = 0,
    overrides: Overrides = None,
    min_nodes: Annotated[
        int | None,
        typer.Option(
            "--min-nodes",
            metavar="N",
            min=1,
            help="Go on with as few nodes; default: all.",
            show_default=False,
        ),
    ] = None,
    cpus_per_node: Annotated[
        int, typer.Option("--cpus-per-node", metavar="C", min=1, help="CPUs of each node.")
    ] = 8,
    memory_per_node: Annotated[
        str,
        typer.Option(
            "--memory-per-node", metavar="SIZE", help="Memory of each node, as Kubernetes writes it."
        ),
    ] = "64Gi",
) -> None:
    """Print a RayJob for KubeRay that runs a recipe.

    The corpus and the run's folder are on the volume, which is mounted at the first folder of --out.

    \b
    permcode kuberay --recipe base --out /shared/runs/base --nodes 2 --gpus-per-node 4 \\
        --image permcode:cuda --volume-claim shared > rayjob.yaml
    """
    with exit_codes(None, only_shows=True):
        from pipeline.schedulers.kuberay import KubernetesJob, ray_job
        from pipeline.schedulers.recipe import check_number_of_nodes, job_name, load_for_nodes

        least = min_nodes or nodes
        check_number_of_nodes(least, nodes)
        if not re.fullmatch(r"(/[A-Za-z0-9._-]+){2,}", str(out)) or ".." in out.parts:
            raise UserError(
                f"--out {out} must be a folder below the volume's mount, in letters, digits and ._-: /shared/runs/mine"
            )
        if not _KUBERNETES_NAME.fullmatch(volume_claim):
            raise UserError(f"--volume-claim {volume_claim!r} is no name in Kubernetes: a-z, 0-9, - and .")
        if not image.strip() or any(letter.isspace() for letter in image):
            raise UserError(f"--image {image!r} is no image: give NAME:TAG")
        if not _QUANTITY.fullmatch(memory_per_node):
            raise UserError(f"--memory-per-node {memory_per_node} is no amount of memory: 64Gi")
        config = load_for_nodes(recipe, overrides or [], least, nodes, gpus_per_node)
        job = KubernetesJob(
            name=job_name(recipe),
            image=image,
            volume_claim=volume_claim,
            mount=PurePosixPath(*out.parts[:2]),
            out=out,
            min_nodes=least,
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            cpus_per_node=cpus_per_node,
            memory_per_node=memory_per_node,
        )
        typer.echo(ray_job(config, job), nl=False)
