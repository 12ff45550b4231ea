"""After an experiment: MLflow gets its data's fingerprints and samples of predictions, the registry its best system."""

import json
from pathlib import Path

from cluster.errors import UserError, first_line
from cluster.reporter import Reporter
from cluster.storage import read_document, sha256_file, write_document
from data_prep.finished.manifest import MANIFEST_NAME
from finetune.experiment.config import ExperimentConfig
from finetune.experiment.files import PREDICTIONS_NAME, RESULT_NAME, first_rows
from finetune.experiment.loaded import columns_of
from pipeline.folder.graph import Step
from pipeline.folder.layout import StageFiles
from pipeline.folder.sections import PlaceConfig
from pipeline.folder.task_folder import best_system, judged_fingerprint
from pipeline.mlflow.registry import Candidate, register
from pipeline.mlflow.store import artifact_root, store_uri
from pipeline.mlflow.tracking import Tracking

_NUM_SAMPLES = 20


def register_best(
    config: ExperimentConfig,
    place: PlaceConfig,
    prep: Path | None,
    out: Path,
    step: Step,
    reporter: Reporter,
) -> None:
    """Hand in a task's fingerprints of data and samples, and register the system that did best on the validation
    split, once. `step` is the task's, finished; `prep` the corpus it read, if any.

    Where nothing was trained, or `tracking.register_models` is off, nothing is registered. A store that is down costs
    a warning.
    """
    note, store = step.folder / StageFiles.REGISTERED, store_uri(out, place.tracking.store)
    registers = place.tracking.register_models
    if _is_registered(note, store, step.key, registers):
        return
    best = best_system(step.folder / RESULT_NAME)
    candidate = None
    if best is not None and registers:
        candidate = _candidate(config, best, step.folder)
    try:
        tracking = Tracking(store, artifact_root(out, store), place.tracking.experiment)
        run_id = _hand_in(tracking, config, prep, step)
        registered = None if candidate is None else register(candidate, store, run_id)
    except UserError:
        raise
    except Exception as error:  # every store fails in its own way
        reporter.warn(f"the registry took nothing ({first_line(error)}); the same command will try again")
        return
    write_document(note, {"store": store, "key": step.key, "models": registers})
    if candidate is not None and registered is not None:
        title = ", now its champion" if registered.is_champion else ", the champion stays"
        name = candidate.folder.parent.parent.name
        reporter.line(f"registry: {name} is version {registered.version} of {registered.name}{title}")


def _candidate(config: ExperimentConfig, best: Path, stage: Path) -> Candidate:
    summary = read_document(stage / RESULT_NAME)
    return Candidate(
        task=config.task.kind,
        asks=config.task.asks,
        columns=columns_of(config.task),
        folder=best,
        metric=summary["headline"],
        headline=read_document(best.parent / RESULT_NAME)["metrics"][summary["headline"]]["value"],
        data=judged_fingerprint(config.task.test_settings(), best.parent / PREDICTIONS_NAME),
    )


def _is_registered(note: Path, store: str, key: str, registers: bool) -> bool:
    """A folder that an experiment with other systems had before has that one's note."""
    if not note.is_file():
        return False
    noted = read_document(note)
    has_models = bool(noted.get("models", True))
    return noted.get("store") == store and noted.get("key", key) == key and (has_models or not registers)


def _hand_in(tracking: Tracking, config: ExperimentConfig, prep: Path | None, step: Step) -> str:
    """Fingerprints of what was read, and samples of what was answered, into the experiment's run: its id."""
    run_id = tracking.find_run(step.key)
    if run_id is None:
        raise RuntimeError("MLflow has not taken the experiment's run yet")
    task = config.task.build()
    for path in task.files():
        context = next((name for name in ("train", "valid", "test") if name in path.name), "data")
        tracking.log_dataset(run_id, path.name, sha256_file(path), str(path), context)
    if prep is not None and task.reads_corpus:
        tracking.log_dataset(run_id, prep.name, sha256_file(prep / MANIFEST_NAME), str(prep), "data")
    tracking.log_table(run_id, _samples(step.folder), "samples.json")
    return run_id


def _samples(stage: Path) -> dict[str, list[str]]:
    """The first predictions of every job, a row each."""
    table: dict[str, list[str]] = {"job": [], "key": [], "answer": []}
    for path in sorted(stage.glob(f"*/seed-*/{PREDICTIONS_NAME}")):
        for row in first_rows(path, _NUM_SAMPLES):
            table["job"].append(str(path.parent.relative_to(stage)))
            table["key"].append(str(row.pop("key")))
            table["answer"].append(json.dumps(row, ensure_ascii=False))
    return table
