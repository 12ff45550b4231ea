"""What MLflow gets to see of a run: a parent run, a child per stage and task arm, fed from the journals.

The stages know nothing of it. A store that cannot be reached never stops a training run: it is a warning, and
the next command on the same folder hands in what is missing.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import UserError, first_line
from cluster.reporter import Reporter
from cluster.storage import fingerprint, read_json, write_json
from pipeline.differences import flatten
from pipeline.graph import Step
from pipeline.run_folder import CONFIG_NAME, REPORT_NAME
from pipeline.stage_record import StageRecord, output_files

if TYPE_CHECKING:
    from cluster.tracking import JournalFeed, RunStatus, Tracking

_PUMP_INTERVAL_S = 3.0
_HANDED_IN_NAME = ".tracked.json"
_SERVER_SCHEMES = ("http://", "https://", "databricks")
_SQLITE_SCHEME = "sqlite:///"


def store_uri(out: Path, configured: str | None) -> str:
    """The MLflow store of a run: the configured one, or the SQLite file in its folder."""
    return configured or f"{_SQLITE_SCHEME}{out.resolve()}/mlflow.db"


def artifact_root(out: Path, store: str) -> Path | None:
    """Where artifacts go: beside an SQLite file, which several runs may share, or else into the run's folder.

    None for a tracking server, which keeps them where it was told to.
    """
    if store.startswith(_SERVER_SCHEMES):
        return None
    file_name = (
        store.removeprefix(_SQLITE_SCHEME).partition("?")[0] if store.startswith(_SQLITE_SCHEME) else ""
    )
    folder = Path(file_name).resolve().parent if file_name else out.resolve()
    return folder / "mlartifacts"


def is_handed_in(out: Path, steps: Sequence[Step], store: str) -> bool:
    """Whether MLflow has everything about these finished steps; needs no MLflow."""
    known = _handed_in(out, store)
    return all(known.get(step.stage.name) == step.key for step in steps)


class MlflowRun:
    """The parent run of one output folder, found again by every command on it."""

    def __init__(
        self, tracking: "Tracking", parent_id: str, out: Path, store: str, reporter: Reporter
    ) -> None:
        self._tracking = tracking
        self._parent_id = parent_id
        self._out = out
        self._store = store
        self._reporter = reporter
        self._has_failed = False

    @contextmanager
    def stage(self, step: Step) -> Iterator[None]:
        """Feed the step's journals to MLflow while the block runs."""
        ids = self._child_runs(step)
        stop = threading.Event()
        thread = threading.Thread(
            target=self._pump_until, args=(stop, step, ids), name="mlflow-feed", daemon=True
        )
        thread.start()
        status: RunStatus = "FINISHED"
        try:
            yield
        except BaseException as error:
            status = status_of(error)
            raise
        finally:
            stop.set()
            thread.join()
            if status != "FINISHED":
                self._finish(ids.values(), status)

    def hand_in(self, step: Step, record: StageRecord) -> None:
        """Give MLflow all of a finished step: what the journals hold yet, its numbers, its artifacts."""
        try:
            ids = self._child_runs(step)
            for feed in self._feeds(step, ids):
                feed.pump()
            for name, run_id in ids.items():
                numbers = (
                    record.summary.get(name, {}) if name else {**record.summary, "wall_s": record.wall_s}
                )
                self._tracking.log_metrics(run_id, summary_numbers(numbers), 0)
            known = summary_numbers(record.summary)
            headlines = {
                f"{step.stage.name}.{key}": known[key] for key in step.stage.headlines if key in known
            }
            self._tracking.log_metrics(self._parent_id, headlines, 0)
            for artifact in step.stage.artifacts:
                self._log_artifact(ids[""], step.folder / artifact)
            self._finish(ids.values(), "FINISHED")
        except Exception as error:  # every store fails in its own way; none may cost a finished stage
            self._warn(error)

    def close(self, steps: Sequence[Step], status: "RunStatus") -> None:
        """End the parent run; when all is finished, note that nothing is left to hand in."""
        try:
            if status == "FINISHED":
                for name in (CONFIG_NAME, REPORT_NAME):
                    if (self._out / name).is_file():
                        self._tracking.log_artifact(self._parent_id, self._out / name, None)
        except Exception as error:  # as above
            self._warn(error)
        self._finish([self._parent_id], status)
        if status == "FINISHED" and not self._has_failed:
            stages = {**_handed_in(self._out, self._store), **{step.stage.name: step.key for step in steps}}
            write_json(self._out / _HANDED_IN_NAME, {"store": self._store, "stages": stages})

    def _log_artifact(self, run_id: str, path: Path) -> None:
        """A file, or what a folder holds but hidden files: those are no outputs."""
        for file in output_files(path) if path.is_dir() else [path]:
            below = file.parent.relative_to(path) if path.is_dir() else Path()
            self._tracking.log_artifact(run_id, file, str(below) if below.parts else None)

    def _child_runs(self, step: Step) -> dict[str, str]:
        """Run ids by arm, "" being the stage itself; empty when the store does not answer."""
        stage = step.stage
        try:
            stage_id = self._tracking.child_run(self._parent_id, stage.name, step.key, stage.config)
            ids = {"": stage_id}
            for arm in stage.journals:
                if arm:
                    params = {"task": stage.name, "arm": arm}
                    ids[arm] = self._tracking.child_run(
                        stage_id, f"{stage.name}-{arm}", f"{step.key}-{arm}", params
                    )
            return ids
        except Exception as error:  # as above
            self._warn(error)
            return {}

    def _feeds(self, step: Step, ids: Mapping[str, str]) -> "list[JournalFeed]":
        journals = step.stage.journals.items()
        return [self._tracking.feed(ids[arm], step.folder / path) for arm, path in journals if arm in ids]

    def _pump_until(self, stop: threading.Event, step: Step, ids: Mapping[str, str]) -> None:
        try:
            feeds = self._feeds(step, ids)
            while not stop.wait(_PUMP_INTERVAL_S):
                for feed in feeds:
                    feed.pump()
            for feed in feeds:
                feed.pump()
        except Exception as error:  # as above
            self._warn(error)

    def _finish(self, run_ids: Any, status: "RunStatus") -> None:
        for run_id in run_ids:
            try:
                self._tracking.finish(run_id, status)
            except Exception as error:  # as above
                self._warn(error)

    def _warn(self, error: Exception) -> None:
        if not self._has_failed:
            self._reporter.warn(
                f"MLflow did not take everything ({first_line(error)}); the same command will try again"
            )
        self._has_failed = True


def open_mlflow(
    config: Mapping[str, Any], params: Mapping[str, Any], out: Path, reporter: Reporter
) -> MlflowRun:
    """Find or begin the parent run of `out`; `config` is the `tracking` part of the run's config.

    A store that does not answer now, before any work, is a UserError.
    """
    from cluster.tracking import Tracking

    store = store_uri(out, config["store"])
    key = fingerprint({"out": str(out.resolve()), "config": dict(params)})
    try:
        tracking = Tracking(store, artifact_root(out, store), config["experiment"])
        parent_id = tracking.parent_run(out.resolve().name, key, params)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"the MLflow store {store} cannot be used ({first_line(error)}): mend it or set tracking.store"
        ) from error
    return MlflowRun(tracking, parent_id, out, store, reporter)


def status_of(error: BaseException) -> "RunStatus":
    """MLflow's word for how a run ended: interrupted by somebody, or failed."""
    return "FAILED" if isinstance(error, Exception) else "KILLED"


def summary_numbers(summary: Mapping[str, Any]) -> dict[str, float]:
    """The numbers and truth values of a nested summary, keys joined by dots; lists and texts are left out."""
    flat = flatten(summary)
    return {key: float(value) for key, value in flat.items() if isinstance(value, (int, float))}


def _handed_in(out: Path, store: str) -> dict[str, str]:
    """The key of every stage that `store` has all about; an unreadable note only costs a second look."""
    path = out / _HANDED_IN_NAME
    try:
        known = read_json(path) if path.is_file() else {}
    except UserError:
        return {}
    stages = known.get("stages") if isinstance(known, dict) and known.get("store") == store else None
    return stages if isinstance(stages, dict) else {}
