"""The MLflow runs of one stage and its jobs: their journals, numbers and artifacts."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import UserError
from cluster.storage import read_document, write_document
from cluster.system_metrics import SYSTEM_PATTERN
from pipeline.folder.differences import flatten
from pipeline.folder.graph import PlannedStage
from pipeline.folder.layout import StageFiles
from pipeline.folder.stage_record import StageRecord, output_files

if TYPE_CHECKING:
    from pipeline.mlflow.journal_metrics import JournalFeed
    from pipeline.mlflow.tracking import RunStatus, Tracking


class StageInMlflow:
    """Logs a stage to MLflow; `sync` may be called repeatedly, also after it failed.

    The process that runs the stage only sets `outcome` and `record`; only `sync` accesses the store.
    """

    def __init__(self, step: PlannedStage) -> None:
        self.step = step
        self.record: StageRecord | None = None
        """The record of a finished stage; set before `outcome`."""
        self.outcome: RunStatus | None = None
        """The status the stage ended with; None while it runs."""
        self.is_done = False
        """Whether everything about the stage was logged."""
        self._ids: dict[str, str] = {}
        """MLflow run ids by job; "" is the stage itself."""
        self._feeds: dict[Path, JournalFeed] = {}

    def sync(self, tracking: "Tracking", parent_id: str) -> None:
        """Log what MLflow lacks. Raises the store's errors."""
        outcome = self.outcome
        if not self._ids:
            self._ids = self._child_runs(tracking, parent_id)
        self._open_feeds(tracking)
        for feed in self._feeds.values():
            feed.send_new()
        if outcome is None:
            return
        if self.record is not None:
            self._log_results(tracking, parent_id, self.record)
        for run_id in self._ids.values():
            tracking.finish(run_id, outcome)
        self.is_done = True

    def _child_runs(self, tracking: "Tracking", parent_id: str) -> dict[str, str]:
        """Find or create the stage's runs. Their ids are noted in its folder: an accepted change alters the key."""
        stage, key, note = self.step.stage, self.step.key, self.step.folder / StageFiles.MLFLOW_NOTE
        known = known_runs(self.step.folder, parent_id)
        stage_id = tracking.child_run(parent_id, stage.name, key, stage.config, known.get(""))
        ids = {"": stage_id}
        for job in filter(None, stage.journals):
            params = {"task": stage.name, "job": job}
            name = f"{stage.name}-{job}"
            ids[job] = tracking.child_run(stage_id, name, f"{key}-{job}", params, known.get(job))
        if ids != known:
            write_document(note, {"parent": parent_id, "runs": ids})
        return ids

    def _open_feeds(self, tracking: "Tracking") -> None:
        """Open a feed for each journal, and for the system metrics of each node as soon as their file exists."""
        journals = {self.step.folder / path: job for job, path in self.step.stage.journals.items()}
        journals |= {path: "" for path in self.step.folder.glob(SYSTEM_PATTERN)}
        for path, job in journals.items():
            if path not in self._feeds:
                self._feeds[path] = tracking.feed(self._ids[job], path)

    def _log_results(self, tracking: "Tracking", parent_id: str, record: StageRecord) -> None:
        for job, run_id in self._ids.items():
            summary = record.summary.get(job, {}) if job else {**record.summary, "wall_s": record.wall_s}
            tracking.log_metrics(run_id, summary_numbers(summary), 0)
        known, stage = summary_numbers(record.summary), self.step.stage
        headlines = {f"{stage.name}.{key}": known[key] for key in stage.headlines if key in known}
        tracking.log_metrics(parent_id, headlines, 0)
        for artifact in stage.artifacts:
            _log_artifact(tracking, self._ids[""], self.step.folder, artifact)


def summary_numbers(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers and booleans of a nested summary under dotted keys, without lists and texts."""
    flat = flatten(summary)
    return {key: float(value) for key, value in flat.items() if isinstance(value, (int, float))}


def known_runs(folder: Path, parent_id: str) -> dict[str, str]:
    """Return the run ids by job that an earlier command noted in a stage's folder; {} for an unreadable note."""
    note = folder / StageFiles.MLFLOW_NOTE
    try:
        values = read_document(note) if note.is_file() else {}
        return dict(values["runs"]) if values.get("parent") == parent_id else {}
    except (UserError, AttributeError, KeyError, TypeError, ValueError):
        return {}


def _log_artifact(tracking: "Tracking", run_id: str, folder: Path, artifact: str) -> None:
    """Log a file under its path in the stage's folder, or the files of a folder without hidden ones."""
    path = folder / artifact
    for file in output_files(path) if path.is_dir() else [path]:
        below = file.parent.relative_to(path if path.is_dir() else folder)
        tracking.log_artifact(run_id, file, str(below) if below.parts else None)
