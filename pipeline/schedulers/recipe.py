"""The recipe of a run that a scheduler starts on several nodes."""

from collections.abc import Sequence
from pathlib import Path

from cluster.errors import UserError
from pipeline.folder.config import RunConfig
from pipeline.folder.recipe import load_run_config
from pipeline.folder.run_folder import config_text
from pipeline.run.submit import config_for_cluster


def load_for_nodes(
    recipe: str, overrides: Sequence[str], min_nodes: int, max_nodes: int, gpus_per_node: int
) -> RunConfig:
    """Return the run with a pretraining worker per GPU, unless `overrides` say otherwise, and absolute paths.

    UserError for a run whose lanes do not divide among the workers.
    """
    ours: list[str] = []
    if gpus_per_node:
        least, most = min_nodes * gpus_per_node, max_nodes * gpus_per_node
        number = f"{most}" if least == most else f"{{min: {least}, max: {most}}}"
        ours = [f"pretrain.num_workers={number}", "resources.pretrain.device=gpu"]
    theirs = {override.partition("=")[0] for override in overrides}
    ours = [override for override in ours if override.partition("=")[0] not in theirs]
    try:
        return config_for_cluster(load_run_config(recipe, [*ours, *overrides]))
    except UserError as error:
        if "num_workers" not in str(error):
            raise
        raise UserError(
            f"{error}; {max_nodes} nodes of {gpus_per_node} GPUs have a worker per GPU: choose other numbers, "
            "or pretrain.micro_batch_lanes=N"
        ) from None


def recipe_text(config: RunConfig) -> str:
    """Return the resolved run as YAML, so that a job depends on no file of this machine."""
    return config_text(config.model_dump(mode="json"))


def job_name(recipe: str) -> str:
    """Return permcode-RECIPE in the letters that both Slurm and Kubernetes allow."""
    stem = Path(recipe).stem.lower()
    letters = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in stem).strip("-")
    return f"permcode-{letters[:40].strip('-')}" if letters else "permcode"


def check_number_of_nodes(min_nodes: int, nodes: int) -> None:
    """Raise UserError if the least number of nodes is larger than the wanted one."""
    if min_nodes > nodes:
        raise UserError(f"--min-nodes {min_nodes} is more than --nodes {nodes}: lower it")
