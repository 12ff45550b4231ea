"""After an experiment: its best system goes into MLflow's registry."""

from collections.abc import Sequence
from pathlib import Path

from cluster.errors import UserError, first_line
from cluster.reporter import Reporter
from cluster.storage import read_json, write_json
from cluster.tracking import Tracking
from finetune.experiment.choices import asks_for
from finetune.experiment.config import ExperimentConfig
from finetune.experiment.stage import RESULT_NAME
from finetune.experiment.usable import columns_of
from pipeline.config import PlaceConfig
from pipeline.finetuned import best_system
from pipeline.graph import Step
from pipeline.mlflow_store import artifact_root, store_uri
from pipeline.registry import Candidate, Registered, register

_NOTE_NAME = ".registered.json"


def register_best(
    config: ExperimentConfig, place: PlaceConfig, out: Path, steps: Sequence[Step], reporter: Reporter
) -> None:
    """Register the system that did best on the validation split, once; a store that is down costs a warning."""
    step = steps[0]
    note, store = step.folder / _NOTE_NAME, store_uri(out, place.tracking.store)
    best = best_system(step.folder / RESULT_NAME)
    if best is None or (note.is_file() and read_json(note).get("store") == store):
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
        data=step.signature,
    )
    try:
        registered = _registered(candidate, store, out, place.tracking.experiment, step.key)
    except UserError:
        raise
    except Exception as error:  # every store fails in its own way
        reporter.warn(
            f"the registry did not take {name} ({first_line(error)}); the same command will try again"
        )
        return
    write_json(note, {"store": store, "name": registered.name, "version": registered.version})
    title = ", now its champion" if registered.is_champion else ", the champion stays"
    reporter.line(f"registry: {name} is version {registered.version} of {registered.name}{title}")


def _registered(candidate: Candidate, store: str, out: Path, experiment: str, key: str) -> Registered:
    run_id = Tracking(store, artifact_root(out, store), experiment).find_run(key)
    if run_id is None:
        raise RuntimeError("MLflow has not taken the experiment's run yet")
    return register(candidate, store, run_id)
