"""A run as a job of a Ray cluster."""

from pathlib import Path

from cluster.jobs import packed_code, submit_job
from cluster.reporter import Reporter
from cluster.storage import fingerprint
from pipeline.config import RunConfig
from pipeline.run_folder import config_text

_RECIPE_NAME = "submitted_recipe.yaml"


def submit_run(config: RunConfig, out: Path, address: str, reporter: Reporter) -> int:
    """Send `permcode run` with this config to the job server at `address`, follow it, return its exit status.

    The job gets the resolved config, so that it does not depend on files of this machine. `out` is made
    absolute here and is a path on the cluster.
    """
    dumped = config.model_dump(mode="json")
    folder = str(out.absolute())
    entrypoint = ["python", "-m", "pipeline.cli", "run", "--recipe", _RECIPE_NAME, "--out", folder]
    with packed_code() as code:
        (code / _RECIPE_NAME).write_text(config_text(dumped), encoding="utf-8")
        return submit_job(
            entrypoint=entrypoint,
            working_folder=code,
            address=address,
            submission_key=fingerprint({"out": folder, "config": dumped}),
            reporter=reporter,
        )
