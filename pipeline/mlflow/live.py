"""What MLflow gets to see of a run while it runs: a parent run, a child per stage and job of a task, fed by journals.

The stages know nothing of it. One thread talks to the store. Only the command's end waits for it, and not for a store
that is down: what it could not take is still in journals and records, from which the next command hands it in.
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
from pipeline.folder.graph import Step
from pipeline.folder.stage_record import StageRecord
from pipeline.mlflow.check import remake_store
from pipeline.mlflow.note import read_note
from pipeline.mlflow.parent_run import ParentInMlflow
from pipeline.mlflow.stage_runs import StageInMlflow
from pipeline.mlflow.store import is_server, own_file

if TYPE_CHECKING:
    from pipeline.mlflow.tracking import RunStatus

_INTERVAL_S = 3.0
_LONGEST_PAUSE_S = 60.0
_PATIENCE_S = 5.0
"""How long a command's end waits for a store that fails."""


def is_handed_in(out: Path, steps: Sequence[Step], store: str) -> bool:
    """Whether MLflow has everything about these finished steps; needs no MLflow."""
    known = read_note(out, store).stages
    return all(known.get(step.stage.name) == step.key for step in steps)


class MlflowRun:
    """Tells a thread of its own what has happened; the thread tells MLflow when it can."""

    def __init__(self, parent: ParentInMlflow, reporter: Reporter) -> None:
        self._parent = parent
        self._reporter = reporter
        self._stages: list[StageInMlflow] = []
        self._outcome: RunStatus | None = None
        self._is_done = False
        self._trouble: Exception | None = None
        """What the last try met with; None when it went well."""
        self._has_failed_to_end = False
        self._has_news = threading.Event()
        self._thread = threading.Thread(target=self._keep_in_sync, name="mlflow", daemon=True)
        self._thread.start()

    @contextmanager
    def stage(self, step: Step) -> Iterator[None]:
        """Feed the step's journals to MLflow from now on; an error in the block ends its runs there."""
        stage = self._add(step)
        try:
            yield
        except BaseException as error:
            stage.outcome = status_of(error)
            raise

    def hand_in(self, step: Step, record: StageRecord) -> None:
        """Give MLflow all of a finished step, as soon as it takes it: journals, numbers, artifacts."""
        known = [stage for stage in self._stages if stage.step is step]
        stage = known[0] if known else self._add(step)
        stage.record = record
        stage.outcome = "FINISHED"
        self._has_news.set()

    def close(self, outcome: "RunStatus") -> None:
        """End the parent run. Waits while MLflow takes what it lacks, and a few seconds for one that fails."""
        self._outcome = outcome
        self._has_news.set()
        patient_until_s = time.monotonic() + _PATIENCE_S
        # What was tried before says nothing about the store now.
        while self._thread.is_alive() and not (
            self._has_failed_to_end and time.monotonic() > patient_until_s
        ):
            self._thread.join(timeout=0.1)
        if not self._is_done and self._trouble is not None and not self._parent.has_no_folder:
            self._reporter.warn(
                f"MLflow did not take everything ({first_line(self._trouble)}); the same command will try again"
            )

    def _add(self, step: Step) -> StageInMlflow:
        stage = StageInMlflow(step)
        self._stages.append(stage)
        self._has_news.set()
        return stage

    def _keep_in_sync(self) -> None:
        pause_s = _INTERVAL_S
        while not self._is_done:
            self._has_news.clear()
            outcome = self._outcome
            if self._parent.has_no_folder:  # the command says so
                return
            try:
                self._parent.sync(list(self._stages), outcome)
                self._is_done = outcome is not None
                self._note(None)
                pause_s = _INTERVAL_S
            except Exception as error:  # every store fails in its own way; none may cost a run
                self._note(error)
                self._has_failed_to_end = outcome is not None
                pause_s = 1.0 if self._outcome else min(2 * pause_s, _LONGEST_PAUSE_S)
            if not self._is_done:
                self._has_news.wait(timeout=pause_s)

    def _note(self, trouble: Exception | None) -> None:
        """Say when MLflow is gone and when it is back; at the end `close` says it."""
        had_trouble, self._trouble = self._trouble is not None, trouble
        if self._outcome is not None or had_trouble == (trouble is not None):
            return
        if trouble is None:
            self._reporter.line("MLflow takes everything again")
        else:
            self._reporter.warn(
                f"MLflow does not take everything ({first_line(trouble)}): the run goes on, and what is missing is "
                "handed in later"
            )


def open_mlflow(
    config: Mapping[str, Any], params: Mapping[str, Any], out: Path, reporter: Reporter
) -> MlflowRun:
    """Find or begin the parent run of `out`; `config` is the `tracking` part of the run's config, `params` the rest.

    A store on this machine that cannot be used now, before any work, is a UserError; a server may come back later.
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
                f"the MLflow store {parent.store} cannot be used ({first_line(error)}): mend it or set tracking.store"
            ) from error
    return MlflowRun(parent, reporter)


def status_of(error: BaseException) -> "RunStatus":
    """MLflow's word for how a run ended: interrupted by somebody, or failed."""
    return "FAILED" if isinstance(error, Exception) else "KILLED"
