"""The stage of a task: trains and evaluates its systems, in a run after pretraining or in an experiment."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cluster.errors import UserError
from cluster.storage import fingerprint, read_document, sha256_file
from finetune.experiment.config import ExperimentConfig
from finetune.experiment.stage import job_paths, run_experiment
from pipeline.folder.differences import without_added_keys
from pipeline.folder.graph import Stage, StageContext
from pipeline.folder.layout import StageFiles
from pipeline.folder.task_folder import fingerprint_test_items

_VERSION = 2
"""The version of what a task's stage writes."""


@dataclass(frozen=True)
class StartingPoint:
    """The base model, and the corpus for tasks that make their data from one."""

    model: Path
    prep: Path | None
    corpus_sha256: str = ""
    """The SHA-256 of the corpus's manifest, or "" where it is part of the stage's key already.

    `permcode forget` changes it, and systems that were evaluated before that had other test items.
    """
    pretrained_on: tuple[str, ...] = ()
    """Locations of the prepared corpora that the model was pretrained on; empty if they are not known."""


def task_stage(
    name: str,
    config: ExperimentConfig,
    start: Callable[[StageContext], StartingPoint],
    signature: Callable[[], str],
    inputs: tuple[str, ...] = (),
) -> Stage:
    """Return the stage `name` of a task; `signature` identifies what it reads beside the stages `inputs`."""
    paths = job_paths(config)
    return Stage(
        name=name,
        config=without_added_keys(config.model_dump(mode="json")),
        run=partial(_run, config, start),
        inputs=inputs,
        signature=signature,
        version=_VERSION,
        journals={
            job: f"{path}/{StageFiles.JOURNAL}"
            for job, (system, _, path) in paths.items()
            if config.systems[system].learns
        },
        artifacts=(StageFiles.RESULT, *(f"{path}/{StageFiles.PREDICTIONS}" for _, _, path in paths.values())),
        headlines=tuple(f"systems.{system}.headline" for system in config.systems),
    )


def data_hashes(config: ExperimentConfig) -> list[str]:
    """Return the SHA-256 of every file that the task reads beside a corpus. Raises UserError for a missing file."""
    files = config.task.build().files()
    for path in files:
        if not path.is_file():
            raise UserError(f"task: the file {path} is missing: check the task's paths")
    return [sha256_file(path) for path in files]


def _run(
    config: ExperimentConfig, start: Callable[[StageContext], StartingPoint], context: StageContext
) -> dict[str, Any]:
    base = start(context)
    corpus = {"corpus": base.corpus_sha256} if base.corpus_sha256 else {}
    inputs = fingerprint({"version": _VERSION, "signature": context.signature, **corpus})
    summary = run_experiment(
        config,
        base.model,
        base.prep,
        context.folder,
        inputs,
        context.reporter,
        base.pretrained_on,
        context.resources,
    )
    first = next(iter(job_paths(config).values()))[2]
    test_items = fingerprint_test_items(
        config.task.model_dump(mode="json"), context.folder / first / StageFiles.PREDICTIONS
    )
    return {**summary, "test_items": test_items, **_numbers_of_jobs(config, context.folder)}


def _numbers_of_jobs(config: ExperimentConfig, folder: Path) -> Mapping[str, dict[str, float]]:
    """Return the metrics of each job, which are logged on the job's own MLflow run."""
    numbers = {}
    for name, (_, _, path) in job_paths(config).items():
        metrics = read_document(folder / path / StageFiles.RESULT)["metrics"]
        numbers[name] = {metric: found["value"] for metric, found in metrics.items()}
    return numbers
