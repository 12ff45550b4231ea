"""One stage in MLflow: a run, one more for each of its jobs, their journals, its numbers and artifacts."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import UserError
from cluster.storage import read_document, write_document
from cluster.system_metrics import SYSTEM_PATTERN
from pipeline.folder.differences import flatten
from pipeline.folder.graph import Step
from pipeline.folder.layout import StageFiles
from pipeline.folder.stage_record import StageRecord, output_files

if TYPE_CHECKING:
    from pipeline.mlflow.feed import JournalFeed
    from pipeline.mlflow.tracking import RunStatus, Tracking


"""A hidden file in the stage's folder: which runs are its own."""


class StageInMlflow:
    """Brings MLflow up to what the stage has come to; `sync` may be called again and again, also after it failed.

    The process that runs the stage only sets `outcome` and `record`; all that talks to the store is in `sync`.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        self.record: StageRecord | None = None
        """Of a finished stage; set before `outcome`."""
        self.outcome: RunStatus | None = None
        """How it ended; None while it runs."""
        self.is_done = False
        """Whether MLflow has everything about it."""
        self._ids: dict[str, str] = {}
        """Run ids by arm, "" being the stage itself."""
        self._feeds: dict[Path, JournalFeed] = {}

    def sync(self, tracking: "Tracking", parent_id: str) -> None:
        """Hand in what MLflow lacks. Raises what the store raises."""
        outcome = self.outcome
        if not self._ids:
            self._ids = self._child_runs(tracking, parent_id)
        self._open_feeds(tracking)
        for feed in self._feeds.values():
            feed.pump()
        if outcome is None:
            return
        if self.record is not None:
            self._hand_in(tracking, parent_id, self.record)
        for run_id in self._ids.values():
            tracking.finish(run_id, outcome)
        self.is_done = True

    def _child_runs(self, tracking: "Tracking", parent_id: str) -> dict[str, str]:
        """The stage's runs go with its folder, whose key changes when a changed setting is accepted."""
        stage, key, note = self.step.stage, self.step.key, self.step.folder / StageFiles.MLFLOW_NOTE
        known = known_runs(self.step.folder, parent_id)
        stage_id = tracking.child_run(parent_id, stage.name, key, stage.config, known.get(""))
        ids = {"": stage_id}
        for arm in filter(None, stage.journals):
            params = {"task": stage.name, "arm": arm}
            name = f"{stage.name}-{arm}"
            ids[arm] = tracking.child_run(stage_id, name, f"{key}-{arm}", params, known.get(arm))
        if ids != known:
            write_document(note, {"parent": parent_id, "runs": ids})
        return ids

    def _open_feeds(self, tracking: "Tracking") -> None:
        """One for each journal, and for each node's figures as soon as they are there."""
        journals = {self.step.folder / path: arm for arm, path in self.step.stage.journals.items()}
        journals |= {path: "" for path in self.step.folder.glob(SYSTEM_PATTERN)}
        for path, arm in journals.items():
            if path not in self._feeds:
                self._feeds[path] = tracking.feed(self._ids[arm], path)

    def _hand_in(self, tracking: "Tracking", parent_id: str, record: StageRecord) -> None:
        for arm, run_id in self._ids.items():
            summary = record.summary.get(arm, {}) if arm else {**record.summary, "wall_s": record.wall_s}
            tracking.log_metrics(run_id, summary_numbers(summary), 0)
        known, stage = summary_numbers(record.summary), self.step.stage
        headlines = {f"{stage.name}.{key}": known[key] for key in stage.headlines if key in known}
        tracking.log_metrics(parent_id, headlines, 0)
        for artifact in stage.artifacts:
            _log_artifact(tracking, self._ids[""], self.step.folder, artifact)


def summary_numbers(summary: Mapping[str, Any]) -> dict[str, float]:
    """The numbers and truth values of a nested summary, keys joined by dots; lists and texts are left out."""
    flat = flatten(summary)
    return {key: float(value) for key, value in flat.items() if isinstance(value, (int, float))}


def known_runs(folder: Path, parent_id: str) -> dict[str, str]:
    """Run ids by arm, as an earlier command noted them in a stage's folder; an unreadable note costs a look by key."""
    note = folder / StageFiles.MLFLOW_NOTE
    try:
        values = read_document(note) if note.is_file() else {}
        return dict(values["runs"]) if values.get("parent") == parent_id else {}
    except (UserError, AttributeError, KeyError, TypeError, ValueError):
        return {}


def _log_artifact(tracking: "Tracking", run_id: str, folder: Path, artifact: str) -> None:
    """A file, under its path in the stage's folder, or what a folder holds but hidden files: those are no outputs."""
    path = folder / artifact
    for file in output_files(path) if path.is_dir() else [path]:
        below = file.parent.relative_to(path if path.is_dir() else folder)
        tracking.log_artifact(run_id, file, str(below) if below.parts else None)
