"""Which records of a journal count: each metric of each step once.

A killed training makes steps again that it had recorded; the first record of them counts, the later ones are the same
work done twice. A rewind makes the steps behind the one that it goes back to void, and they are made anew. So does a
start under changed settings that were accepted.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cluster.journal import JournalRecord

PATIENCE_FACT = "rewind_patience_steps"
"""Of an event "start" or "again": the steps that make a spike, None where no spike brings a rewind."""


@dataclass(frozen=True)
class Point:
    """A metric's value at a step, and when it was recorded (seconds since the epoch)."""

    step: int
    name: str
    value: float
    time_s: float


class Lineage:
    """Takes a journal's records in order and hands out the points that count, those of a metric by rising steps.

    Where rewinds may come, the event "start" says how many steps in a row make the spike that brings one; steps that
    were not applied are none of them and do not part them. A point is then settled when a commit is behind it and so
    many steps behind that commit: a rewind goes back to the newest commit before the spike, so it cannot reach the
    point any more. The end of a run settles everything.

    Nobody can know that a run will go on under other settings: then points of steps that were handed out come again,
    with other values.
    """

    def __init__(self) -> None:
        self._patience_steps: int | None = None
        self._last_steps: dict[str, int] = {}
        """Of each metric, in the lineage that holds."""
        self._waiting: list[Point] = []
        self._commits: list[int] = []
        self._not_applied: set[int] = set()
        self._has_ended = False
        self._is_changed = False
        """Whether this attempt goes on under settings other than those of the commit that it goes on from."""
        self._changed_at_step = -1
        """The step from which the newest accepted settings hold."""

    def take(self, records: Iterable[JournalRecord]) -> None:
        """Go on with the next records."""
        for record in records:
            if record.kind == "step" and record.step is not None:
                self._take_step(record, record.step)
            elif record.name == "rewind":
                self._rewind(int(record.facts["to_step"]))
            elif record.name == "commit":
                self._commits.append(int(record.facts["step"]))
            elif record.name in ("attempt", "accepted"):
                self._is_changed = record.name == "accepted"
            elif record.name in ("start", "again"):
                self._start(record.facts)
            elif record.name == "end":
                self._has_ended = True

    def settled(self) -> list[Point]:
        """The points that became settled since the last call, by time of recording."""
        if self._patience_steps is None or self._has_ended:
            return self.all_so_far()
        last_safe_commit = self._last_before_a_spike(self._patience_steps)
        safe_step = max((step for step in self._commits if step <= last_safe_commit), default=0)
        settled = [point for point in self._waiting if point.step <= safe_step]
        self._waiting = [point for point in self._waiting if point.step > safe_step]
        return settled

    def all_so_far(self) -> list[Point]:
        """The points that count now and were not handed out, settled or not."""
        points, self._waiting = self._waiting, []
        return points

    def _start(self, facts: dict[str, Any]) -> None:
        step = int(facts.get("step", 0))
        # A commit from before the change that needs no change any more: the settings were set back.
        if self._is_changed or step <= self._changed_at_step:
            self._rewind(step)
            self._changed_at_step = step
        self._is_changed = False
        self._has_ended = False  # a finished run may be extended
        self._patience_steps = facts.get(PATIENCE_FACT)

    def _last_before_a_spike(self, patience_steps: int) -> int:
        """The step before as many applied steps as make a spike, of those that were made so far."""
        step, left = max(self._last_steps.values(), default=0), patience_steps
        while left > 0 and step > 0:
            left -= step not in self._not_applied
            step -= 1
        return step

    def _take_step(self, record: JournalRecord, step: int) -> None:
        if not record.facts.get("applied", True) and step > max(self._last_steps.values(), default=0):
            self._not_applied.add(step)
        for name, value in record.metrics.items():
            if step > self._last_steps.get(name, -1):
                self._last_steps[name] = step
                self._waiting.append(Point(step, name, value, record.time_s))

    def _rewind(self, to_step: int) -> None:
        self._last_steps = {name: min(step, to_step) for name, step in self._last_steps.items()}
        self._waiting = [point for point in self._waiting if point.step <= to_step]
        self._commits = [step for step in self._commits if step <= to_step]
        self._not_applied = {step for step in self._not_applied if step <= to_step}


def counting_steps(records: Iterable[JournalRecord]) -> dict[int, dict[str, float]]:
    """The metrics that count by step, steps in order, as far as the records go."""
    lineage = Lineage()
    lineage.take(records)
    by_step: dict[int, dict[str, float]] = {}
    for point in lineage.all_so_far():
        by_step.setdefault(point.step, {})[point.name] = point.value
    return dict(sorted(by_step.items()))
