"""Sends a journal's metrics to an MLflow run, each value of each step once, also when processes are killed."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.journal import JournalRecord, JournalTail
from pretrain.journal.events import Ended, Start
from pretrain.journal.replay import Replay

_BATCH_METRICS = 1000
"""The most metrics that the store accepts in one call."""
_REFUSED = re.compile(r"[^\w.\-/ ]")


@dataclass(frozen=True)
class Point:
    """A metric's value at a step, with the time of its record (seconds since the epoch)."""

    step: int
    name: str
    value: float
    time_s: float


class SettledPoints:
    """Selects the points of a journal that no rewind can void any more, those of a metric by rising steps.

    Where rewinds are possible, the event "start" says how many applied steps in a row make a spike. A rewind goes back
    to the newest checkpoint before the spike. So a point is settled when a checkpoint and, after that checkpoint, as
    many applied steps as make a spike follow it. The end of a run settles everything.

    When a run is continued under other settings, points of steps that were returned come again, with other values.
    """

    def __init__(self) -> None:
        self._replay = Replay()
        self._waiting: list[Point] = []
        self._has_ended = False

    def take(self, records: Iterable[JournalRecord]) -> None:
        """Read the next records."""
        for record in records:
            change = self._replay.take(record)
            if change.void:
                first_void = min(made.step for made in change.void)
                self._waiting = [point for point in self._waiting if point.step < first_void]
            if change.made is not None:
                self._waiting += [
                    Point(change.made.step, name, value, record.time_s)
                    for name, value in change.added.items()
                ]
            if isinstance(change.event, Start | Ended):
                self._has_ended = isinstance(change.event, Ended)  # a finished run may be extended

    def settled(self) -> list[Point]:
        """Return the points that became settled since the last call, by time of recording."""
        start = self._replay.newest_start
        spike_steps = start.rewind_patience_steps if start is not None else None
        if spike_steps is None or self._has_ended:
            return self.all_so_far()
        last_safe_step = self._last_before_a_spike(spike_steps)
        safe_step = max((step for step in self._replay.checkpoints if step <= last_safe_step), default=0)
        settled = [point for point in self._waiting if point.step <= safe_step]
        self._waiting = [point for point in self._waiting if point.step > safe_step]
        return settled

    def all_so_far(self) -> list[Point]:
        """Return all points that count now and were not returned yet, settled or not."""
        points, self._waiting = self._waiting, []
        return points

    def _last_before_a_spike(self, spike_steps: int) -> int:
        """Return the last step before the newest `spike_steps` applied steps."""
        step, left = self._replay.last_step, spike_steps
        while left > 0 and step > 0:
            made = self._replay.steps.get(step)
            left -= made is None or made.applied
            step -= 1
        return step


class JournalFeed:
    """Sends the settled points of a journal to a run, once and in order.

    The store knows the last step of each metric, so a feed continues where a killed one ended. Values in the store
    cannot be replaced, so the first value of a step stays. One call is one transaction: all of a batch is stored or
    nothing. A call whose answer got lost is repeated with the same times and values, which the store's primary key
    accepts once.
    """

    def __init__(self, client: Any, run_id: str, journal_path: Path) -> None:
        self._client = client
        self._run_id = run_id
        self._tail = JournalTail(journal_path)
        self._points = SettledPoints()
        self._unsent: list[Point] = []
        self._stored_steps: dict[str, int] | None = None
        """The last step of each metric in the store; None if it has to be queried."""

    def send_new(self) -> int:
        """Send the new points of the journal; return the number of values sent.

        Raises the store's errors; the next call then sends what is missing.
        """
        self._points.take(self._tail.new_records())
        self._unsent += self._points.settled()
        if not self._unsent:
            return 0
        if self._stored_steps is None:
            self._stored_steps = stored_steps(self._client, self._run_id)
        stored = self._stored_steps
        unsent = [point for point in self._unsent if point.step > stored.get(metric_key(point.name), -1)]
        # After accepted changes steps come again with other values; of unsent values the later one is sent.
        self._unsent = list({(point.name, point.step): point for point in unsent}.values())
        try:
            return self._send(stored)
        except Exception:
            # It is not known whether the store accepted the batch.
            self._stored_steps = None
            raise

    def _send(self, stored: dict[str, int]) -> int:
        """Send all unsent points in batches and update `stored`; return the number of values sent."""
        from mlflow.entities import Metric

        num_sent = 0
        while self._unsent:
            batch = [
                Metric(
                    metric_key(point.name), point.value, timestamp=round(point.time_s * 1000), step=point.step
                )
                for point in self._unsent[:_BATCH_METRICS]
            ]
            self._client.log_batch(self._run_id, metrics=batch)
            stored.update((metric.key, metric.step) for metric in batch)
            del self._unsent[: len(batch)]
            num_sent += len(batch)
        return num_sent


def stored_steps(client: Any, run_id: str) -> dict[str, int]:
    """Return the highest step of each metric in the store."""
    return {metric.key: metric.step for metric in client.get_run(run_id).data.to_proto().metrics}


def metric_key(name: str) -> str:
    """Return a metric's name with only the characters that MLflow accepts."""
    return _REFUSED.sub("_", name)
