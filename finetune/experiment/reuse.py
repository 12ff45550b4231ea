"""Trained jobs are kept when an experiment's systems or seeds change.

If systems or seeds are added, only their jobs are trained. A job that the config no longer names is moved aside,
finished or not, and used again once the config names it.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from cluster.storage import fingerprint, read_document, write_document
from finetune.experiment.config import ExperimentConfig

IDENTITY_NAME = "identity.json"
"""In a job's folder, from its start on."""
ASIDE_NAME = ".aside"
"""In the experiment's folder: contains the jobs that the config does not name, by their identity."""


def job_identity(config: ExperimentConfig, system: str, seed: int, inputs: str) -> str:
    """Return a hash that is equal for jobs with the same result. `inputs` identifies data, base model and code."""
    parts = {
        "inputs": inputs,
        "task": config.task.model_dump(mode="json"),
        "name": system,
        "system": config.systems[system].model_dump(mode="json"),
        "training": config.training_of_system(system).model_dump(mode="json"),
        "robustness": config.robustness.model_dump(mode="json"),
        "seed": seed,
        "data_seed": config.seed,
    }
    return fingerprint(parts)


def sort_jobs(folder: Path, wanted: Mapping[str, str]) -> list[str]:
    """Move other jobs in `folder` aside, move wanted ones back, and write each wanted job's identity to its folder.

    `wanted` has the identity of every job by its path below `folder`. Returns the paths of those that already existed.
    """
    for job in sorted(folder.glob("*/seed-*")):
        identity = _identity_in(job)
        if identity is not None and identity != wanted.get(_path_in(folder, job)):
            (folder / ASIDE_NAME).mkdir(exist_ok=True)
            job.rename(folder / ASIDE_NAME / identity)
            with suppress(OSError):  # other seeds are there
                job.parent.rmdir()
    kept = []
    for path, identity in wanted.items():
        job, aside = folder / path, folder / ASIDE_NAME / identity
        if aside.is_dir() and not job.exists():
            job.parent.mkdir(parents=True, exist_ok=True)
            aside.rename(job)
        if job.is_dir():
            kept.append(path)
        write_document(job / IDENTITY_NAME, {"identity": identity})
    return kept


def _path_in(folder: Path, job: Path) -> str:
    return job.relative_to(folder).as_posix()


def _identity_in(job: Path) -> str | None:
    path = job / IDENTITY_NAME
    if not path.is_file():
        return None
    identity: str | None = read_document(path, f"remove {job} and run the same command again").get("identity")
    return identity
