"""Runs that are killed, stopped, resumed and rewound, second by second: what each second was, and what was recorded.

Everything lasts whole seconds, so that the reference is a plain list of words.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from cluster.journal import JournalRecord

NUM_STEPS = 9
CHECKPOINT_EVERY = 3


@dataclass
class Second:
    """One second of wall time: what was done, and for which making of which step."""

    what: str
    making: int | None = None


class Killed(Exception):
    """The process is dead."""


@dataclass
class SimulatedRun:
    """`seconds` is the truth, `records` the journal; times begin at 1000."""

    draw: random.Random
    seconds: list[Second] = field(default_factory=list)
    records: list[JournalRecord] = field(default_factory=list)
    counting: dict[int, int] = field(default_factory=dict)
    """Step -> the making of it that counts."""
    num_makings: int = 0
    checkpoint: int = 0
    beat_s: float | None = None
    kill_at: int = 0
    num_attempts: int = 0
    has_started: bool = False

    @property
    def now_s(self) -> float:
        return 1000.0 + len(self.seconds)

    @property
    def is_finished(self) -> bool:
        return bool(self.records) and self.records[-1].name == "end"

    def spend(self, what: str, num_seconds: int, making: int | None = None) -> float:
        """Seconds of a live process; it may be killed before each."""
        for _ in range(num_seconds):
            if len(self.seconds) >= self.kill_at:
                raise Killed
            self.seconds.append(Second(what, making))
            self.beat_s = self.now_s
        return float(num_seconds)

    def event(self, name: str, **facts: Any) -> None:
        self.records.append(JournalRecord(kind="event", time_s=self.now_s, text=name, name=name, facts=facts))

    def attempt(self, kill_after_s: int | None, stop_after: int | None) -> None:
        """One process, from its beginning to its end."""
        if kill_after_s == 0:
            self.wait(1)  # Killed before it could say or do anything.
            return
        self.kill_at = len(self.seconds) + (10**9 if kill_after_s is None else kill_after_s)
        began_s, previous_beat_s = self.now_s, self.beat_s
        self.has_started = False
        try:
            self.spend("startup_s", 1)
            self.event("attempt", process_started_s=began_s, previous_beat_s=previous_beat_s)
            self.num_attempts += 1
            self.spend("startup_s", self.draw.randrange(4))
            self.event("start", process_started_s=began_s, step=self.checkpoint)
            self.has_started = True
            self._train(stop_after)
        except Killed:
            if self.has_started:
                for second in self.seconds[int(self.records[-1].time_s - 1000) :]:
                    second.what = "lost_s"

    def wait(self, num_seconds: int) -> None:
        """Nobody works."""
        self.seconds += [Second("down_s") for _ in range(num_seconds)]

    def reference(self) -> dict[str, int]:
        """Seconds by part, counted one by one."""
        counted: dict[str, int] = {}
        makings = set(self.counting.values())
        for second in self.seconds:
            is_lost = second.making is not None and second.making not in makings
            what = "lost_s" if is_lost else second.what
            counted[what] = counted.get(what, 0) + 1
        return counted

    def _train(self, stop_after: int | None) -> None:
        step = self.checkpoint
        unmeasured = "startup_s"
        stall_s = 0
        while step < NUM_STEPS:
            self.num_makings += 1
            making = self.num_makings
            if unmeasured:
                self.spend(unmeasured, self.draw.randrange(2))
            began_s = self.now_s
            facts = {
                "save_s": self.spend("save_s", stall_s, making),
                "data_s": self.spend("data_s", self.draw.randrange(3), making),
                "compute_s": self.spend("compute_s", self.draw.randrange(1, 4), making),
                "evaluation_s": self.spend("evaluation_s", self.draw.randrange(2), making),
            }
            step += 1
            self._record_step(step, making, {**facts, "began_s": began_s})
            unmeasured, stall_s = "", 0
            if self.draw.random() < 0.1:
                step, unmeasured = self._rewind(step), "lost_s"
            elif step % CHECKPOINT_EVERY == 0 and step < NUM_STEPS:
                self.checkpoint, stall_s = step, self.draw.randrange(2)
                self.event("checkpoint", step=step, reason="cadence", stall_s=stall_s)
            if step == stop_after:
                self._end("stop", step, evaluation_s=0)
                return
        self._end("end", step, evaluation_s=2)

    def _record_step(self, step: int, making: int, facts: dict[str, Any]) -> None:
        self.counting.setdefault(step, making)
        metrics = {"loss": float(making)}
        self.records.append(
            JournalRecord(kind="step", time_s=self.now_s, step=step, metrics=metrics, facts=facts)
        )

    def _rewind(self, step: int) -> int:
        self.spend("lost_s", self.draw.randrange(2))
        self.event("rewind", from_step=step, to_step=self.checkpoint)
        self.counting = {one: making for one, making in self.counting.items() if one <= self.checkpoint}
        return self.checkpoint

    def _end(self, name: str, step: int, evaluation_s: int) -> None:
        stall_s = self.spend("save_s", self.draw.randrange(3))
        self.checkpoint = step
        self.event(name, step=step, save_s=stall_s, evaluation_s=self.spend("evaluation_s", evaluation_s))
