"""One stage in MLflow: a run, one more for each of its arms, their journals, its numbers and artifacts."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.system_metrics import SYSTEM_PATTERN
from pipeline.differences import flatten
from pipeline.graph import Step
from pipeline.stage_record import StageRecord, output_files

if TYPE_CHECKING:
    from cluster.journal_feed import JournalFeed
    from cluster.tracking import RunStatus, Tracking


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
        stage = self.step.stage
        stage_id = tracking.child_run(parent_id, stage.name, self.step.key, stage.config)
        ids = {"": stage_id}
        for arm in filter(None, stage.journals):
            params = {"task": stage.name, "arm": arm}
            ids[arm] = tracking.child_run(stage_id, f"{stage.name}-{arm}", f"{self.step.key}-{arm}", params)
        return ids

    def _open_feeds(self, tracking: "Tracking") -> None:
        """One for each journal, and for each node's figures as soon as they are there."""
        patience_steps = _spike_patience_steps(self.step)
        for arm, path in self.step.stage.journals.items():
            self._open_feed(tracking, arm, self.step.folder / path, patience_steps)
        for samples in self.step.folder.glob(SYSTEM_PATTERN):
            self._open_feed(tracking, "", samples, None)

    def _open_feed(self, tracking: "Tracking", arm: str, path: Path, patience_steps: int | None) -> None:
        if path not in self._feeds:
            self._feeds[path] = tracking.feed(self._ids[arm], path, patience_steps)

    def _hand_in(self, tracking: "Tracking", parent_id: str, record: StageRecord) -> None:
        for arm, run_id in self._ids.items():
            summary = record.summary.get(arm, {}) if arm else {**record.summary, "wall_s": record.wall_s}
            tracking.log_metrics(run_id, summary_numbers(summary), 0)
        known, stage = summary_numbers(record.summary), self.step.stage
        headlines = {f"{stage.name}.{key}": known[key] for key in stage.headlines if key in known}
        tracking.log_metrics(parent_id, headlines, 0)
        for artifact in stage.artifacts:
            _log_artifact(tracking, self._ids[""], self.step.folder / artifact)


def summary_numbers(summary: Mapping[str, Any]) -> dict[str, float]:
    """The numbers and truth values of a nested summary, keys joined by dots; lists and texts are left out."""
    flat = flatten(summary)
    return {key: float(value) for key, value in flat.items() if isinstance(value, (int, float))}


def _spike_patience_steps(step: Step) -> int | None:
    """How long a step of the stage can be made void by a rewind; None where there are no rewinds."""
    health = step.stage.config.get("health") or {}
    return health["spike_patience_steps"] if health.get("spikes") == "rewind" else None


def _log_artifact(tracking: "Tracking", run_id: str, path: Path) -> None:
    """A file, or what a folder holds but hidden files: those are no outputs."""
    for file in output_files(path) if path.is_dir() else [path]:
        below = file.parent.relative_to(path) if path.is_dir() else Path()
        tracking.log_artifact(run_id, file, str(below) if below.parts else None)
