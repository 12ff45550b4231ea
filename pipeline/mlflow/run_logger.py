"""Logs a run to MLflow while it runs: a parent run, and a child run per stage and per job of a task.

The stages do not know of MLflow: metrics are read from their journals. One thread talks to the store. Only the end of
the command waits for it, and not for a store that is down: what could not be logged is still in journals and records,
and the next command logs it.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import UserError, first_line
from cluster.reporter import Reporter
from cluster.sqlite_store import BrokenStoreError, sqlite_file
from pipeline.folder.graph import PlannedStage
from pipeline.folder.stage_record import StageRecord
from pipeline.mlflow.check import remake_store
from pipeline.mlflow.note import read_note
from pipeline.mlflow.parent_run import ParentInMlflow
from pipeline.mlflow.stage_runs import StageInMlflow
from pipeline.mlflow.store import is_server, own_file

if TYPE_CHECKING:
    from pipeline.mlflow.tracking import RunStatus

INTERVAL_S = 3.0
_MAX_INTERVAL_S = 60.0
_CLOSE_TIMEOUT_S = 5.0
"""How long the end of a command waits for a store that fails."""


def is_logged(out: Path, steps: Sequence[PlannedStage], store: str) -> bool:
    """Return whether everything about these finished steps was logged, according to the folder's note."""
    known = read_note(out, store).stages
    return all(known.get(step.stage.name) == step.key for step in steps)


class MlflowLogger:
    """Logs stages to MLflow from a thread of its own, which retries while the store fails."""

    def __init__(self, parent: ParentInMlflow, reporter: Reporter) -> None:
        self._parent = parent
        self._reporter = reporter
        self._stages: list[StageInMlflow] = []
        self._outcome: RunStatus | None = None
        self._is_done = False
        self._problem: Exception | None = None
        """The error of the last try; None if it succeeded."""
        self._has_failed_to_end = False
        self._has_news = threading.Event()
        self._thread = threading.Thread(target=self._keep_in_sync, name="mlflow", daemon=True)
        self._thread.start()

    @contextmanager
    def stage(self, step: PlannedStage) -> Iterator[None]:
        """Log the step's journals during and after the block; an error in the block ends its MLflow runs."""
        stage = self._add(step)
        try:
            yield
        except BaseException as error:
            stage.outcome = status_of(error)
            raise

    def submit(self, step: PlannedStage, record: StageRecord) -> None:
        """Queue all of a finished step for MLflow: journals, numbers, artifacts."""
        known = [stage for stage in self._stages if stage.step is step]
        stage = known[0] if known else self._add(step)
        stage.record = record
        stage.outcome = "FINISHED"
        self._has_news.set()

    def close(self, outcome: "RunStatus") -> None:
        """End the parent run. Waits while the rest is logged; a store that fails gets a few seconds."""
        self._outcome = outcome
        self._has_news.set()
        deadline_s = time.monotonic() + _CLOSE_TIMEOUT_S
        # Only a failure after `_outcome` was set counts: earlier ones do not say how the store is now.
        while self._thread.is_alive() and not (self._has_failed_to_end and time.monotonic() > deadline_s):
            self._thread.join(timeout=0.1)
        if not self._is_done and self._problem is not None and not self._parent.has_lost_folder():
            self._reporter.warn(
                f"not everything could be logged to MLflow ({first_line(self._problem)}); the same command tries again"
            )

    def _add(self, step: PlannedStage) -> StageInMlflow:
        stage = StageInMlflow(step)
        self._stages.append(stage)
        self._has_news.set()
        return stage

    def _keep_in_sync(self) -> None:
        pause_s = INTERVAL_S
        while not self._is_done:
            self._has_news.clear()
            outcome = self._outcome
            if self._parent.has_lost_folder():  # the command reports it
                return
            try:
                self._parent.sync(list(self._stages), outcome)
                self._is_done = outcome is not None
                self._report(None)
                pause_s = INTERVAL_S
            except Exception as error:  # every store fails in its own way; none may stop a run
                if self._parent.has_lost_folder():  # the store went with it
                    return
                self._report(error)
                self._has_failed_to_end = outcome is not None
                pause_s = 1.0 if self._outcome else min(2 * pause_s, _MAX_INTERVAL_S)
            if not self._is_done:
                self._has_news.wait(timeout=pause_s)

    def _report(self, problem: Exception | None) -> None:
        """Print when MLflow starts to fail and when it works again; at the end `close` prints it."""
        had_problem, self._problem = self._problem is not None, problem
        if self._outcome is not None or had_problem == (problem is not None):
            return
        if problem is None:
            self._reporter.line("MLflow works again")
        else:
            self._reporter.warn(
                f"MLflow fails ({first_line(problem)}): the run continues, and what is missing is logged later"
            )


def open_mlflow(
    config: Mapping[str, Any], params: Mapping[str, Any], out: Path, reporter: Reporter
) -> MlflowLogger:
    """Find or create the parent run of `out`; `config` is the `tracking` part of the run's config, `params` the rest.

    Raises UserError for a store on this machine that cannot be used; a server may come back later.
    """
    parent = ParentInMlflow(config, params, out)
    if not is_server(parent.store):
        try:
            try:
                parent.connect()
            except BrokenStoreError as error:
                if sqlite_file(parent.store) != own_file(out):
                    raise
                remake_store(out, parent.store, f"cannot be used ({error})", reporter)
                parent.connect()
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"the MLflow store {parent.store} cannot be used ({first_line(error)}): fix it or set tracking.store"
            ) from error
    return MlflowLogger(parent, reporter)


def status_of(error: BaseException) -> "RunStatus":
    """Return MLflow's status for a run that ended with `error`: FAILED, or KILLED if it was interrupted."""
    return "FAILED" if isinstance(error, Exception) else "KILLED"
