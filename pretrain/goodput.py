"""Goodput: where every second of a run's wall time went, from its journal and its heartbeat, over all restarts.

The journal is read in the order it was written. A mark is the time up to which all is accounted for; each record moves
it to its own time and assigns the span between to parts. So no second is counted twice or left out at any kill.

A step counts as it was made first; the time to repeat it is lost work. A rewind turns the steps after its target into
lost work.

Clocks are set back, and attempts run on machines whose clocks differ: if a record is older than the mark, all later
times are shifted by the difference, so no span is negative.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from cluster.heartbeat import STALE_S
from cluster.journal import JournalRecord
from pretrain.journal.events import Attempt, Ended, Rewound, Start, StartAfterRewind, Stopped, event_of
from pretrain.journal.replay import Change, Replay, replayed


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """Seconds by kind of use; every second of a run is in exactly one of these."""

    startup_s: float = 0.0
    """From the start of a process to its first step."""
    data_s: float = 0.0
    """Waiting for a batch."""
    compute_s: float = 0.0
    """Steps that count."""
    save_s: float = 0.0
    """Steps waiting for a checkpoint."""
    evaluation_s: float = 0.0
    lost_s: float = 0.0
    """Work that a kill or a rewind discarded, and the repetition of steps that were made before."""
    down_s: float = 0.0
    """Time without a process of the run, or after it had ended its work."""

    @property
    def total_s(self) -> float:
        """The sum of all parts."""
        return sum(self.by_name().values())

    def by_name(self) -> dict[str, float]:
        """Return the parts by field name, in this order."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def sum_of(parts: Iterable[Parts]) -> Parts:
    """Return the sums of the parts of several spans."""
    spans = list(parts)
    return Parts(**{field.name: sum(getattr(span, field.name) for span in spans) for field in fields(Parts)})


LABELS = {
    "startup_s": "start-up",
    "data_s": "data wait",
    "compute_s": "compute",
    "save_s": "save stall",
    "evaluation_s": "evaluation",
    "lost_s": "lost work re-done",
    "down_s": "down",
}
"""The labels of the parts in figures and reports."""


@dataclass(frozen=True)
class Goodput:
    """The wall time of a run from the start of the first process, over all restarts."""

    parts: Parts
    wall_s: float
    """The time from the first start to the end, measured independently; `parts` add up to it."""
    num_attempts: int
    unexplained_s: float
    """The difference between the records' measurements and the times between them; it is counted as compute."""

    @property
    def share(self) -> float:
        """Goodput: the share of compute in all time; 0 before the first second."""
        return self.shares()["compute_s"]

    def shares(self) -> dict[str, float]:
        """Return each part as a share of the whole; all 0 before the first second."""
        whole_s = self.wall_s or 1.0
        return {name: seconds / whole_s for name, seconds in self.parts.by_name().items()}

    def summary(self) -> dict[str, Any]:
        """Return the figures for the record of a finished stage."""
        return {
            "share": self.share,
            "wall_s": self.wall_s,
            "num_attempts": self.num_attempts,
            "unexplained_s": self.unexplained_s,
            "seconds": self.parts.by_name(),
        }


Phase = Literal["down", "starting", "started", "stepping", "rewinding", "stopped", "finished"]
_MEASURED = ("save_s", "data_s", "evaluation_s", "compute_s")
"""Facts of steps, stops and ends: how the time since the previous record was spent; they are fields of `Parts`."""


def goodput(records: Iterable[JournalRecord], last_beat_s: float | None, now_s: float) -> Goodput:
    """Account for a run up to its end, or up to `now_s` where it has not ended.

    `last_beat_s` is the time of the run's last heartbeat: a run with a fresh one works until `now_s`, any other worked
    until its last one. All times are seconds since the epoch. A journal without records gives zeros.
    """
    ledger = _Ledger()
    for record in records:
        ledger.take(record)
    ledger.close(last_beat_s, now_s)
    return Goodput(
        parts=sum_of([*ledger.spans, *ledger.steps.values()]),
        wall_s=ledger.mark_s - ledger.first_s,
        num_attempts=ledger.num_attempts,
        unexplained_s=ledger.unexplained_s,
    )


class LiveGoodput:
    """The goodput of a run that is being made, from its journal's records as they appear.

    All records are counted when an attempt begins or the run goes back, and between that only what a step adds: the
    memory and the time for a record do not grow with the journal.
    """

    def __init__(self, read_all: Callable[[], Sequence[JournalRecord]]) -> None:
        """Prepare; `read_all` reads the whole journal."""
        self._read_all = read_all
        self._compute_s = self._wall_s = 0.0
        self._counted_s: float | None = None
        """On this process's monotonic clock, when `_wall_s` was the run's age."""
        self._last_step = 0
        self._is_finished = False

    def take(self, records: Sequence[JournalRecord]) -> None:
        """Take the new records; the first call counts everything."""
        events = [event_of(record) for record in records if record.kind == "event"]
        has_turned = any(isinstance(event, Attempt | Start | Rewound | Ended) for event in events)
        if has_turned or (records and self._counted_s is None):
            self._count_all()
            return
        for record in records:
            if record.kind == "step" and record.step is not None and record.step > self._last_step:
                self._last_step = record.step
                self._compute_s += record.facts.get("compute_s", 0.0)

    def share(self) -> float | None:
        """Return the share of compute in all time up to now; None before the first record."""
        if self._counted_s is None:
            return None
        since_s = 0.0 if self._is_finished else time.monotonic() - self._counted_s
        wall_s = self._wall_s + since_s
        return min(1.0, self._compute_s / wall_s) if wall_s > 0 else 0.0

    def _count_all(self) -> None:
        records, now_s = self._read_all(), time.time()
        # The step in work is not compute yet: its record will say how long it took.
        counted = goodput(records, None, now_s)
        self._last_step = max(replayed(records).steps, default=0)
        self._compute_s, self._wall_s = counted.parts.compute_s, counted.wall_s
        self._counted_s = time.monotonic()
        self._is_finished = bool(records) and isinstance(event_of(records[-1]), Ended)


class _Ledger:
    """The account up to the mark."""

    def __init__(self) -> None:
        self.phase: Phase = "down"
        self.spans: list[Parts] = []
        self.steps: dict[int, Parts] = {}
        """The steps that count by number: a rewind can discard them."""
        self.replay = Replay()
        self.first_s = self.mark_s = 0.0
        self.clock_lag_s = 0.0
        """How far clocks were set back until the mark."""
        self.num_attempts = 0
        self.unexplained_s = 0.0

    def take(self, record: JournalRecord) -> None:
        """Move the mark to `record`, if it is a kind of record that accounts for time."""
        change = self.replay.take(record)
        if change.made is not None:
            self._take_step(change, self._time_of(record), record.facts)
            return
        match change.event:
            case Attempt() as attempt:
                self._begin(self._time_of(record), attempt)
            case Start() as start if not isinstance(start, StartAfterRewind):
                if self.phase != "starting":
                    self._begin(self._time_of(record), Attempt())
                self._charge("startup_s", self._time_of(record))
                self.phase = "started"
                self._make_lost(change)
            case Rewound():
                self._rewind(self._time_of(record), change)
            case Stopped():
                self._end(self._time_of(record), record.facts, "stopped")
            case Ended():
                self._end(self._time_of(record), record.facts, "finished")

    def close(self, last_beat_s: float | None, now_s: float) -> None:
        """Move the mark to the run's end, or to now if it has not ended."""
        if self.num_attempts == 0 or self.phase == "finished":
            return
        end_s = now_s + self.clock_lag_s
        if last_beat_s is not None and now_s - last_beat_s < STALE_S:
            self._charge_phase(end_s, is_alive=True)
        elif last_beat_s is not None:
            self._charge_phase(last_beat_s + self.clock_lag_s, is_alive=False)
        self._charge("down_s", end_s)

    def _begin(self, written_s: float, attempt: Attempt) -> None:
        """Begin an attempt: charge the previous one until its last beat, then down time until this process started."""
        started_s = written_s if attempt.process_started_s is None else attempt.process_started_s
        began_s = min(started_s + self.clock_lag_s, written_s)
        if self.num_attempts == 0:
            self.first_s = self.mark_s = began_s
        if attempt.previous_beat_s is not None:
            self._charge_phase(min(attempt.previous_beat_s + self.clock_lag_s, written_s), is_alive=False)
        self._charge("down_s", began_s)
        self.phase = "starting"
        self.num_attempts += 1

    def _take_step(self, change: Change, written_s: float, facts: dict[str, Any]) -> None:
        assert change.made
        step = change.made.step
        if self.num_attempts == 0:
            self._begin(written_s, Attempt())
        if self.phase != "stepping":
            # Until its first step begins, an attempt starts up or rewinds.
            began_s = min(facts.get("began_s", self.mark_s) + self.clock_lag_s, written_s)
            self._charge("lost_s" if self.phase == "rewinding" else "startup_s", began_s)
            self.phase = "stepping"
        span = self._split(written_s - self.mark_s, facts)
        self.mark_s = written_s
        if change.is_repeated:
            self.spans.append(Parts(lost_s=span.total_s))
            return
        # An evaluation may come after its step in a record of its own.
        self.steps[step] = sum_of([span, self.steps.get(step, Parts())])

    def _split(self, span_s: float, facts: dict[str, Any]) -> Parts:
        """Split a span by the measurements, limited to the span; the rest is compute."""
        measured = {name: facts.get(name, 0.0) for name in _MEASURED}
        self.unexplained_s += abs(span_s - sum(measured.values()))
        left_s, parts = span_s, {}
        for name in ("save_s", "data_s", "evaluation_s"):
            parts[name] = min(measured[name], left_s)
            left_s -= parts[name]
        return Parts(compute_s=left_s, **parts)

    def _rewind(self, written_s: float, change: Change) -> None:
        # A rewind that a kill interrupted is recorded by the next start.
        is_starting = self.phase == "starting"
        self._charge("startup_s" if is_starting else "lost_s", written_s)
        self._make_lost(change)
        if not is_starting:
            self.phase = "rewinding"

    def _make_lost(self, change: Change) -> None:
        """Count the time of void steps as lost work."""
        for made in change.void:
            if (parts := self.steps.pop(made.step, None)) is not None:
                self.spans.append(Parts(lost_s=parts.total_s))

    def _end(self, written_s: float, facts: dict[str, Any], phase: Phase) -> None:
        """End the attempt: its last save, and the evaluation of a finished run."""
        if self.phase == "starting":
            self._charge("startup_s", written_s)
        self.spans.append(self._split(written_s - self.mark_s, facts))
        self.mark_s = written_s
        self.phase = phase

    def _charge_phase(self, until_s: float, is_alive: bool) -> None:
        """Charge an attempt's time after its last record: the step in work, which is lost if the attempt is dead."""
        if self.phase == "starting":
            self._charge("startup_s", until_s)
        elif self.phase in ("started", "stepping"):
            is_new = is_alive and self.replay.position >= self.replay.last_step
            self._charge("compute_s" if is_new else "lost_s", until_s)
        elif self.phase == "rewinding":
            self._charge("lost_s", until_s)

    def _charge(self, part: str, until_s: float) -> None:
        """Move the mark to `until_s` and add the time to `part`; never backwards."""
        if until_s > self.mark_s:
            self.spans.append(Parts(**{part: until_s - self.mark_s}))
            self.mark_s = until_s

    def _time_of(self, record: JournalRecord) -> float:
        """Return when it was written, on a clock that never goes back."""
        written_s = record.time_s + self.clock_lag_s
        if written_s >= self.mark_s:
            return written_s
        measured_s = float(sum(record.facts.get(name, 0.0) for name in _MEASURED))
        self.clock_lag_s += self.mark_s + measured_s - written_s
        return self.mark_s + measured_s
