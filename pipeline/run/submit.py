"""Runs `permcode run` as a job of a Ray cluster."""

import tempfile
from pathlib import Path

from cluster.jobs import pack_code, submit_job
from cluster.reporter import Reporter
from cluster.storage import fingerprint
from data_prep.sources.config import absolute, with_absolute_paths
from pipeline.folder.config import RunConfig
from pipeline.folder.run_folder import config_text

_RECIPE_NAME = "submitted_recipe.yaml"


def submit_run(config: RunConfig, out: Path, address: str, reporter: Reporter) -> int:
    """Send `permcode run` with this config to the job server at `address`, follow the job, return its exit status.

    The job gets the resolved config, so that it does not depend on files of this machine. `out` is a path on the
    cluster; it is made absolute here.
    """
    dumped = config_for_cluster(config).model_dump(mode="json")
    folder = str(out.absolute())
    entrypoint = ["python", "-m", "pipeline.cli", "run", "--recipe", _RECIPE_NAME, "--out", folder]
    with tempfile.TemporaryDirectory(prefix="permcode-recipe-") as temporary:
        recipe = Path(temporary) / _RECIPE_NAME
        recipe.write_text(config_text(dumped), encoding="utf-8")
        with pack_code({_RECIPE_NAME: recipe}) as code:
            return submit_job(
                entrypoint=entrypoint,
                working_folder=code,
                address=address,
                submission_key=fingerprint({"out": folder, "config": dumped}),
                reporter=reporter,
            )


def config_for_cluster(config: RunConfig) -> RunConfig:
    """Return the run with absolute paths of corpus and evaluation sets: a job has another working directory."""
    decontamination = config.prep.decontamination
    sets = {
        name: given if given.path is None else given.model_copy(update={"path": absolute(given.path)})
        for name, given in decontamination.sets.items()
    }
    prep = config.prep.model_copy(
        update={
            "source": with_absolute_paths(config.prep.source),
            "decontamination": decontamination.model_copy(update={"sets": sets}),
        }
    )
    return config.model_copy(update={"prep": prep})
