"""The MLflow run of a whole output folder, the parent of its stages' runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import UserError
from cluster.sqlite_store import sqlite_file
from cluster.storage import exclusive_lock, fingerprint, is_locked
from pipeline.folder.layout import RunFiles
from pipeline.mlflow.note import MlflowNote, read_note, write_note
from pipeline.mlflow.stage_runs import StageInMlflow
from pipeline.mlflow.store import artifact_root, own_file, store_uri

if TYPE_CHECKING:
    from pipeline.mlflow.tracking import RunStatus, Tracking


class ParentInMlflow:
    """Logs a run folder to MLflow; `sync` may be called again after it failed.

    The MLflow run is found by a note in the folder, and without a note by the fingerprint of the folder and the config.
    So it stays the same run when a key of the config changes later, unless the note says otherwise.
    """

    def __init__(self, config: Mapping[str, Any], params: Mapping[str, Any], out: Path) -> None:
        """`config` is the `tracking` part of the run's config, `params` the rest."""
        self.store = store_uri(out, config["store"])
        self._experiment: str = config["experiment"]
        self._params = params
        self._out = out
        self._tracking: Tracking | None = None
        self._run_id = ""

    def has_lost_folder(self) -> bool:
        """Return whether the run's folder was removed, so that nothing more can be logged."""
        return not self._out.is_dir()

    def connect(self) -> "Tracking":
        """Find or create the run and set it to RUNNING; runs that a dead process left RUNNING are ended first.

        Raises UserError for a store that cannot be used, and the store's own errors.
        """
        from pipeline.mlflow.tracking import Tracking

        if self._tracking is None:
            tracking = Tracking(
                self.store,
                artifact_root(self._out, self.store),
                self._experiment,
                owns_store=sqlite_file(self.store) == own_file(self._out),
            )
            note = read_note(self._out, self.store)
            _end_dead(tracking, note)
            name = self._out.resolve().name
            key = fingerprint({"out": str(self._out.resolve()), "config": dict(self._params)})
            # Before the run is RUNNING, so that it is found if this process is killed right then.
            note = replace(note, experiment=self._experiment, key=key, is_open=True)
            write_note(self._out, note)
            self._run_id = tracking.parent_run(name, key, self._params, note.known_run)
            write_note(self._out, note.with_run(self._run_id))
            self._tracking = tracking
        return self._tracking

    def sync(self, stages: Sequence[StageInMlflow], outcome: "RunStatus | None") -> None:
        """Log what MLflow lacks, and end the run once there is an outcome.

        An error in one stage does not stop the others; the first error is raised at the end.
        """
        tracking = self.connect()
        errors: list[Exception] = []
        for stage in stages:
            try:
                if not stage.is_done:
                    stage.sync(tracking, self._run_id)
            except Exception as error:  # every store fails in its own way
                errors.append(error)
        if outcome == "FINISHED":
            for name in (RunFiles.CONFIG, RunFiles.REPORT):
                if (self._out / name).is_file():
                    tracking.log_artifact(self._run_id, self._out / name, None)
        if outcome is not None:
            tracking.finish(self._run_id, outcome)
        if errors:
            raise errors[0]
        if outcome is not None:
            self._note_end({stage.step.stage.name: stage.step.key for stage in stages}, outcome)

    def _note_end(self, keys: dict[str, str], outcome: "RunStatus") -> None:
        note = read_note(self._out, self.store)
        if outcome == "FINISHED":
            note = note.with_stages(keys)
        write_note(self._out, replace(note, is_open=False))


def _end_dead(tracking: "Tracking", note: MlflowNote) -> int:
    """End the folder's runs that are RUNNING, also one that was created but not noted; return their number."""
    begun = tracking.find_run(note.key) if note.is_open and note.key else None
    run_ids = dict.fromkeys([*note.runs, *([begun] if begun else [])])
    return sum(tracking.end_dead(run_id) for run_id in run_ids)


def end_dead_runs(out: Path) -> int:
    """Set the MLflow runs that a dead process left RUNNING to KILLED; return their number.

    Does nothing while a process works in `out`. Raises the store's errors.
    """
    note, lock = read_note(out), out / RunFiles.LOCK
    file = sqlite_file(note.store)
    # A store that is gone is created by the next command that runs stages, not by `permcode status`.
    if not note.is_open or is_locked(lock) or (file is not None and not file.is_file()):
        return 0
    from pipeline.mlflow.tracking import Tracking

    tracking = Tracking(note.store, artifact_root(out, note.store), note.experiment)
    try:
        # Locked for a moment only, and late, because a command that starts now would be refused.
        with exclusive_lock(lock):
            num_ended = _end_dead(tracking, note)
            write_note(out, replace(note, is_open=False))
            return num_ended
    except UserError:
        return 0
