"""After an experiment: MLflow gets its data's fingerprints and samples of predictions, the registry its best system."""

import json
from collections.abc import Sequence
from pathlib import Path

from cluster.errors import UserError, first_line
from cluster.reporter import Reporter
from cluster.storage import read_json, sha256_file, write_json
from cluster.tracking import Tracking
from finetune.experiment.choices import asks_for, task_of
from finetune.experiment.config import ExperimentConfig
from finetune.experiment.files import PREDICTIONS_NAME, RESULT_NAME, first_rows
from finetune.experiment.usable import columns_of
from pipeline.config import PlaceConfig
from pipeline.finetuned import best_system
from pipeline.graph import Step
from pipeline.judged import judged_fingerprint
from pipeline.mlflow_store import artifact_root, store_uri
from pipeline.registry import Candidate, Registered, register

_NOTE_NAME = ".registered.json"
_NUM_SAMPLES = 20


def register_best(
    config: ExperimentConfig, place: PlaceConfig, out: Path, steps: Sequence[Step], reporter: Reporter
) -> None:
    """Register the system that did best on the validation split, once; a store that is down costs a warning."""
    step = steps[0]
    note, store = step.folder / _NOTE_NAME, store_uri(out, place.tracking.store)
    best = best_system(step.folder / RESULT_NAME)
    if best is None or _is_registered(note, store, step.key):
        return
    summary = read_json(step.folder / RESULT_NAME)
    name = best.parent.parent.name
    candidate = Candidate(
        task=config.task.kind,
        asks=asks_for(config.task),
        columns=columns_of(config.task),
        folder=best,
        metric=summary["headline"],
        headline=read_json(best.parent / RESULT_NAME)["metrics"][summary["headline"]]["value"],
        data=judged_fingerprint(config.task.model_dump(mode="json"), best.parent / PREDICTIONS_NAME),
    )
    try:
        registered = _registered(candidate, config, store, out, place.tracking.experiment, step.key)
    except UserError:
        raise
    except Exception as error:  # every store fails in its own way
        reporter.warn(
            f"the registry did not take {name} ({first_line(error)}); the same command will try again"
        )
        return
    write_json(
        note, {"store": store, "key": step.key, "name": registered.name, "version": registered.version}
    )
    title = ", now its champion" if registered.is_champion else ", the champion stays"
    reporter.line(f"registry: {name} is version {registered.version} of {registered.name}{title}")


def _is_registered(note: Path, store: str, key: str) -> bool:
    """A folder that an experiment with other systems had before has that one's note."""
    if not note.is_file():
        return False
    noted = read_json(note)
    return bool(noted.get("store") == store and noted.get("key", key) == key)


def _registered(
    candidate: Candidate, config: ExperimentConfig, store: str, out: Path, experiment: str, key: str
) -> Registered:
    tracking = Tracking(store, artifact_root(out, store), experiment)
    run_id = tracking.find_run(key)
    if run_id is None:
        raise RuntimeError("MLflow has not taken the experiment's run yet")
    for path in task_of(config.task).files():
        context = next((name for name in ("train", "valid", "test") if name in path.name), "data")
        tracking.log_dataset(run_id, path.name, sha256_file(path), str(path), context)
    tracking.log_table(run_id, _samples(candidate.folder.parents[2]), "samples.json")
    return register(candidate, store, run_id)


def _samples(stage: Path) -> dict[str, list[str]]:
    """The first predictions of every job, a row each."""
    table: dict[str, list[str]] = {"job": [], "key": [], "answer": []}
    for path in sorted(stage.glob(f"*/seed-*/{PREDICTIONS_NAME}")):
        for row in first_rows(path, _NUM_SAMPLES):
            table["job"].append(str(path.parent.relative_to(stage)))
            table["key"].append(str(row.pop("key")))
            table["answer"].append(json.dumps(row, ensure_ascii=False))
    return table
