"""After a task: logs the fingerprints of its data and samples of predictions, and registers its best system."""

import json
from pathlib import Path

from cluster.errors import UserError, first_line
from cluster.reporter import Reporter
from cluster.storage import read_document, sha256_file, write_document
from data_prep.finished.manifest import MANIFEST_NAME
from finetune.experiment.config import ExperimentConfig
from finetune.experiment.files import first_rows
from finetune.experiment.loaded import columns_of
from pipeline.folder.graph import PlannedStage
from pipeline.folder.layout import StageFiles
from pipeline.folder.sections import PlaceConfig
from pipeline.folder.task_folder import best_system, fingerprint_test_items
from pipeline.mlflow.registry import Candidate, register
from pipeline.mlflow.store import artifact_root, store_uri
from pipeline.mlflow.tracking import Tracking

_NUM_SAMPLES = 20


def register_best(
    config: ExperimentConfig,
    place: PlaceConfig,
    prep: Path | None,
    out: Path,
    step: PlannedStage,
    reporter: Reporter,
) -> None:
    """Log a task's data and samples, and register the system with the best validation result, once.

    `step` is the finished step of the task, `prep` the corpus it read, if any. Nothing is registered if no system was
    trained or `tracking.register_models` is off. A store that does not answer causes a warning.
    """
    note, store = step.folder / StageFiles.REGISTERED, store_uri(out, place.tracking.store)
    registers = place.tracking.register_models
    if _is_registered(note, store, step.key, registers):
        return
    best = best_system(step.folder / StageFiles.RESULT)
    candidate = None
    if best is not None and registers:
        candidate = _candidate(config, best, step.folder)
    try:
        tracking = Tracking(store, artifact_root(out, store), place.tracking.experiment)
        run_id = _log_data(tracking, config, prep, step)
        registered = None if candidate is None else register(candidate, store, run_id)
    except UserError:
        raise
    except Exception as error:  # every store fails in its own way
        reporter.warn(
            f"nothing could be registered in MLflow ({first_line(error)}); the same command will try again"
        )
        return
    write_document(note, {"store": store, "key": step.key, "models": registers})
    if candidate is not None and registered is not None:
        title = ", now its champion" if registered.is_champion else ", the champion stays"
        name = candidate.folder.parent.parent.name
        reporter.line(f"registry: {name} is version {registered.version} of {registered.name}{title}")


def _candidate(config: ExperimentConfig, best: Path, stage: Path) -> Candidate:
    summary = read_document(stage / StageFiles.RESULT)
    return Candidate(
        task=config.task.kind,
        modality=config.task.modality,
        columns=columns_of(config.task),
        folder=best,
        metric=summary["headline"],
        headline=read_document(best.parent / StageFiles.RESULT)["metrics"][summary["headline"]]["value"],
        data=fingerprint_test_items(config.task.test_settings(), best.parent / StageFiles.PREDICTIONS),
    )


def _is_registered(note: Path, store: str, key: str, registers: bool) -> bool:
    """Return whether the note says that this step's system was registered. It may be of the folder's former systems."""
    if not note.is_file():
        return False
    noted = read_document(note)
    has_models = bool(noted.get("models", True))
    return noted.get("store") == store and noted.get("key", key) == key and (has_models or not registers)


def _log_data(tracking: Tracking, config: ExperimentConfig, prep: Path | None, step: PlannedStage) -> str:
    """Log the fingerprints of the task's data and samples of predictions to the task's run; return the run's id."""
    run_id = tracking.find_run(step.key)
    if run_id is None:
        raise RuntimeError("the experiment's run is not in MLflow yet")
    task = config.task.build()
    for path in task.files():
        context = next((name for name in ("train", "valid", "test") if name in path.name), "data")
        tracking.log_dataset(run_id, path.name, sha256_file(path), str(path), context)
    if prep is not None and task.reads_corpus:
        tracking.log_dataset(run_id, prep.name, sha256_file(prep / MANIFEST_NAME), str(prep), "data")
    tracking.log_table(run_id, _samples(step.folder), "samples.json")
    return run_id


def _samples(stage: Path) -> dict[str, list[str]]:
    """Return the first predictions of every job as columns of a table."""
    table: dict[str, list[str]] = {"job": [], "key": [], "answer": []}
    for path in sorted(stage.glob(f"*/seed-*/{StageFiles.PREDICTIONS}")):
        for row in first_rows(path, _NUM_SAMPLES):
            table["job"].append(str(path.parent.relative_to(stage)))
            table["key"].append(str(row.pop("key")))
            table["answer"].append(json.dumps(row, ensure_ascii=False))
    return table
