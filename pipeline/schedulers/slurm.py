"""Batch scripts for Slurm: Ray on all nodes of a job, permcode on the first one, requeued when the time is up."""

import shlex
import sys
from importlib import resources
from pathlib import Path

from cluster.errors import UserError
from pipeline.folder.config import RunConfig
from pipeline.schedulers.recipe import recipe_text

_SECONDS_BEFORE_END = 300
"""When Slurm's signal comes before the end of the time limit: the time for a checkpoint."""


def batch_script(config: RunConfig, out: Path, name: str, nodes: int, gpus_per_node: int) -> str:
    """Return the script of a job that runs all stages on `nodes` nodes at once."""
    return _script(config, out, name, "run", [f"--nodes={nodes}", "--ntasks-per-node=1"], gpus_per_node)


def prep_array_script(config: RunConfig, out: Path, name: str, nodes: int) -> str:
    """Return the script of an array of one-node jobs that prepare the corpus: each joins when the queue lets it."""
    return _script(config, out, f"{name}-prep", "prep", [f"--array=0-{nodes - 1}", "--nodes=1"], 0)


def _script(
    config: RunConfig, out: Path, name: str, command: str, size: list[str], gpus_per_node: int
) -> str:
    if any(ord(letter) < ord(" ") for letter in str(out)):
        raise UserError(f"--out {str(out)!r} has a control character: choose another folder")
    options = [
        f"--job-name={name}",
        *size,
        *([f"--gpus-per-node={gpus_per_node}"] if gpus_per_node else []),
        "--exclusive",
        "--requeue",
        f"--signal=B:USR1@{_SECONDS_BEFORE_END}",
        "--open-mode=append",
        f"--output=%x-{'%A_%a' if command == 'prep' else '%j'}.log",
    ]
    text = recipe_text(config)
    end = "END_OF_RECIPE"
    while end in text:
        end += "_"
    return "\n".join(
        [
            "#!/bin/bash",
            "# shellcheck disable=SC2016,SC2089,SC2090 # paths may have any character",
            "# Written by `permcode slurm`. Options given to sbatch override those below: sbatch --time=24:00:00 FILE",
            *(f"#SBATCH {option}" for option in options),
            f"command={command}",
            f"gpus_per_node={gpus_per_node}",
            "# The environment that this file was made in; every node must see it, as it must see the run's folder.",
            f"python={shlex.quote(sys.executable)}",
            f"out={shlex.quote(str(out.absolute()))}",
            f"read -r -d '' recipe << '{end}'",
            text + end,
            "",
            (resources.files("pipeline.schedulers") / "slurm_job.sh").read_text(encoding="utf-8"),
        ]
    )
