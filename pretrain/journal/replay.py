"""Replay of a journal: the steps that count, among all that kills, rewinds and changed settings left.

- A killed attempt leaves steps that the next one repeats with the same bits: the first record of each metric counts.
- A rewind makes the steps after its target void; they are made again from other data.
- A start under changed settings that were accepted, or with another corpus, makes the steps after its checkpoint void,
and so does the first start from before that checkpoint, because the settings may have been changed back.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cluster.journal import JournalRecord
from pretrain.journal.events import Accepted, Attempt, CheckpointWritten, Event, Rewound, Start, event_of


@dataclass
class SurvivingStep:
    """A step that counts, as it was made first."""

    step: int
    time_s: float
    facts: dict[str, Any]
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def applied(self) -> bool:
        """Whether the step changed the weights."""
        return bool(self.facts.get("applied", True))

    @property
    def loss(self) -> float:
        """The mean loss over the batch."""
        return self.metrics["loss"]

    @property
    def cursor(self) -> int:
        """The data step that it read."""
        return int(self.facts["cursor"])

    @property
    def digest(self) -> int:
        """The checksum of the tokens that it read."""
        return int(self.facts["digest"])


@dataclass(frozen=True)
class Change:
    """The effect of one record."""

    event: Event | None = None
    """The record's event, see `event_of`."""
    made: SurvivingStep | None = None
    """The record's step, if it is a step's."""
    added: dict[str, float] = field(default_factory=dict)
    """The metrics of this record that count."""
    is_repeated: bool = False
    """Whether an earlier attempt had already made the step."""
    void: tuple[SurvivingStep, ...] = ()
    """Steps that do not count any more."""
    num_left_behind: int = 0
    """How many steps the run went back."""


class Replay:
    """Replays a journal's records in order."""

    def __init__(self) -> None:
        self.steps: dict[int, SurvivingStep] = {}
        """The steps that count by number; those after `position` were made by an attempt that was killed."""
        self.position = 0
        """The last step of the newest attempt."""
        self.checkpoints: dict[int, JournalRecord] = {}
        """The records of the checkpoints on the way to `position`, by step."""
        self.newest_start: Start | None = None
        self.num_attempts = 0
        self._last_steps: dict[str, int] = {}
        """The last step of each metric, among the steps that count."""
        self._is_repeated = False
        """Whether the step at `position` had been made before."""
        self._is_changed = False
        """Whether this attempt starts under settings other than its checkpoint's."""
        self._changed_at_step = -1
        """The step from which the newest accepted settings hold."""

    def take(self, record: JournalRecord) -> Change:
        """Replay the next record."""
        if record.kind == "step":
            return self._take_step(record, record.step) if record.step is not None else Change()
        event = event_of(record)
        match event:
            case Attempt():
                self.num_attempts += 1
                self._is_changed = False
            case Accepted():
                self._is_changed = True
            case Start():
                return self._start(event)
            case Rewound():
                return self._go_back(event, event.to_step, is_void=True)
            case CheckpointWritten():
                self.checkpoints[event.step] = record
        return Change(event)

    @property
    def last_step(self) -> int:
        """The highest step that counts, 0 before the first."""
        return max(self._last_steps.values(), default=0)

    def surviving_steps(self) -> dict[int, SurvivingStep]:
        """Return the steps up to `position`, in order: those that made the weights of the newest attempt."""
        return {step: self.steps[step] for step in sorted(self.steps) if step <= self.position}

    def metrics(self) -> dict[int, dict[str, float]]:
        """Return the metrics of all steps that count and have some, in the order of steps."""
        return {step: self.steps[step].metrics for step in sorted(self.steps) if self.steps[step].metrics}

    def _take_step(self, record: JournalRecord, step: int) -> Change:
        if step != self.position:
            self._is_repeated = step in self.steps
        self.position = step
        made = self.steps.setdefault(step, SurvivingStep(step, record.time_s, record.facts))
        added = {
            name: value for name, value in record.metrics.items() if step > self._last_steps.get(name, -1)
        }
        made.metrics |= added
        self._last_steps |= dict.fromkeys(added, step)
        return Change(made=made, added=added, is_repeated=self._is_repeated)

    def _start(self, start: Start) -> Change:
        has_other_corpus = self.newest_start is not None and start.corpus != self.newest_start.corpus
        self.newest_start = start
        # A checkpoint from before the change, without a new change: the settings were changed back.
        is_void = self._is_changed or has_other_corpus or start.step <= self._changed_at_step
        if is_void:
            self._changed_at_step = start.step
        self._is_changed = False
        return self._go_back(start, start.step, is_void)

    def _go_back(self, event: Event, to_step: int, is_void: bool) -> Change:
        num_left_behind = max(0, self.position - to_step)
        self.position, self._is_repeated = to_step, True
        self.checkpoints = {step: one for step, one in self.checkpoints.items() if step <= to_step}
        if not is_void:
            return Change(event, num_left_behind=num_left_behind)
        void = tuple(self.steps.pop(step) for step in sorted(self.steps) if step > to_step)
        self._last_steps = {name: min(step, to_step) for name, step in self._last_steps.items()}
        return Change(event, void=void, num_left_behind=num_left_behind)


def replayed(records: Iterable[JournalRecord]) -> Replay:
    """Replay a whole journal, or the part of it that there is."""
    replay = Replay()
    for record in records:
        replay.take(record)
    return replay


def counting_steps(records: Iterable[JournalRecord]) -> dict[int, dict[str, float]]:
    """Return the metrics that count by step, steps in order."""
    return replayed(records).metrics()
