"""What a journal says of a run's data: the steps that made the model, and what does not fit together.

A run may continue with another corpus or mixture, where that is accepted. What it read before then cannot be compared
with what is read now.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from cluster.journal import JournalRecord
from pretrain.journal.events import Rewound, Start, StartAfterRewind, event_of
from pretrain.journal.replay import MadeStep, Replay


@dataclass(frozen=True)
class Books:
    """For the audit."""

    steps: dict[int, MadeStep]
    """By number, in order."""
    skipped: list[tuple[int, int]]
    """Half-open ranges of data steps that rewinds pass over."""
    checkpoints: dict[int, int]
    """Cursor of every checkpoint made on the way to the last step, by step."""
    num_attempts: int
    num_remade: int
    """Steps that a kill or a rewind threw away."""
    problems: list[str]
    """What does not fit together."""
    comparable_from_step: int
    """All steps from this one on read the newest corpus."""

    @property
    def last_step(self) -> int:
        """0 before the first."""
        return next(reversed(self.steps), 0)

    @property
    def comparable_steps(self) -> list[int]:
        """Those that read the newest corpus."""
        return [step for step in self.steps if step >= self.comparable_from_step]


def books_of(records: Iterable[JournalRecord]) -> Books:
    """Read the books from a journal."""
    keeper = _Keeper()
    for record in records:
        keeper.take(record)
    replay = keeper.replay
    return Books(
        steps=replay.line(),
        skipped=keeper.skipped,
        checkpoints={step: int(one.facts["cursor"]) for step, one in replay.checkpoints.items()},
        num_attempts=keeper.num_starts,
        num_remade=keeper.num_remade,
        problems=keeper.problems,
        comparable_from_step=keeper.comparable_from_step,
    )


@dataclass
class _Keeper:
    replay: Replay = field(default_factory=Replay)
    skipped: list[tuple[int, int]] = field(default_factory=list)
    num_starts: int = 0
    num_remade: int = 0
    problems: list[str] = field(default_factory=list)
    comparable_from_step: int = 0
    _corpus: str | None = None
    """Fingerprint of the newest one."""
    _earlier: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Cursor and digest of steps that a kill threw away: made again, they must read the same."""

    def take(self, record: JournalRecord) -> None:
        position, event = self.replay.position, event_of(record)
        if isinstance(event, Start) and not isinstance(event, StartAfterRewind):
            self._look_at_start(event)
        change = self.replay.take(record)
        self.num_remade += change.num_left_behind
        if isinstance(event, Rewound):
            # After a rewind the same step reads other data.
            self._earlier.clear()
            self.skipped.append((event.skipped_from_cursor, event.skipped_to_cursor))
        if record.step is not None and "cursor" in record.facts:
            self._look_at_step(record.step, position, (record.facts["cursor"], record.facts["digest"]))

    def _look_at_start(self, start: Start) -> None:
        self.num_starts += 1
        if start.step > self.replay.position:
            self.problems.append(
                f"attempt {start.attempt} starts after step {start.step}, "
                f"but the journal has steps up to {self.replay.position} only"
            )
        for step, made in self.replay.line().items():
            if step > start.step:
                self._earlier[step] = (made.cursor, made.digest)
        # What follows may read other tokens than before: of another corpus, or of the newest at last.
        is_changed = self._corpus is not None and start.corpus != self._corpus
        if is_changed or start.step + 1 < self.comparable_from_step:
            self.comparable_from_step = start.step + 1
            self._earlier.clear()
        self._corpus = start.corpus

    def _look_at_step(self, step: int, position: int, read: tuple[int, int]) -> None:
        if step != position + 1:
            self.problems.append(f"step {step} follows step {position}")
        if self._earlier.pop(step, read) != read:
            self.problems.append(f"step {step} read other tokens when it was made again after a kill")
