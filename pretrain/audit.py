"""The audit: was every token that training came past consumed exactly once?

What a data step consumes is a pure function of the manifest, the seed and the step's number. So the books balance
when the steps that made the model consumed data steps 0, 1, 2, ... once each, but for the windows that rewinds pass
over, and when the slices that an epoch gives its lanes adjoin without overlapping. Both are checked on the numbers
themselves. The digests that steps left in the journal are compared with the shards' own bytes where reading them is
asked for.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cluster.errors import UserError
from cluster.journal import JournalRecord
from cluster.storage import read_document
from pretrain.checkpoint.listing import STATE_NAME, step_of
from pretrain.checkpoint.verify import find_damage
from pretrain.data.epochs import Epoch
from pretrain.data.lanes import BlockRange, LaneReader
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


_MOST_TOLD = 20


@dataclass
class Audit:
    """What was found; `problems` is empty when the books balance."""

    num_steps: int
    num_attempts: int
    num_remade_steps: int
    """Steps that kills and rewinds threw away."""
    num_unapplied_steps: int
    """Of the steps that count: read, but not learnt from, since their loss or gradient was not finite."""
    tokens_consumed: int
    tokens_passed_over: int
    """In the windows of rewinds."""
    tokens_lost: int
    """Come past, but in no step and no window."""
    tokens_repeated: int
    epochs_begun: int
    tail_tokens: int
    """Of the epochs that were read to their end: too few for a step of all lanes."""
    num_incomparable_steps: int = 0
    """Of the steps that count: made before the corpus was changed, so their tokens and epochs are not known now."""
    num_digests_checked: int = 0
    problems: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self) | {"balances": not self.problems}


def audit(books: Books, reader: LaneReader) -> Audit:
    """Check a run's books against what the corpus says its steps read; opens no block."""
    step_tokens = reader.lanes * reader.segment_tokens
    cursors = np.array([made.cursor for made in books.steps.values()], dtype=np.int64)
    end = int(cursors.max()) + 1 if len(cursors) else 0
    passed = {cursor for start, stop in books.skipped for cursor in range(start, stop) if cursor < end}
    surplus = np.bincount(cursors, minlength=end) - 1
    surplus[sorted(passed)] += 1
    epochs = _epochs_before(reader, end)
    problems = [
        *books.problems,
        *(f"data step {cursor} was consumed by no step" for cursor in np.flatnonzero(surplus < 0)),
        *(f"data step {cursor} was consumed more than once" for cursor in np.flatnonzero(surplus > 0)),
        *_disorder(books),
        *(problem for epoch in epochs for problem in _overlaps(reader, epoch)),
    ]
    return Audit(
        num_steps=len(books.steps),
        num_attempts=books.num_attempts,
        num_remade_steps=books.num_remade,
        num_unapplied_steps=sum(not made.applied for made in books.steps.values()),
        tokens_consumed=len(cursors) * step_tokens,
        tokens_passed_over=len(passed) * step_tokens,
        tokens_lost=int(-surplus[surplus < 0].sum()) * step_tokens,
        tokens_repeated=int(surplus[surplus > 0].sum()) * step_tokens,
        epochs_begun=len(epochs),
        tail_tokens=sum(
            epoch.num_tokens - epoch.num_steps * step_tokens for epoch in epochs if epoch.end_step <= end
        ),
        num_incomparable_steps=len(books.steps) - len(books.comparable_steps),
        problems=problems[:_MOST_TOLD]
        + ([f"and {len(problems) - _MOST_TOLD} more"] * (len(problems) > _MOST_TOLD)),
    )


def missing_steps(books: Books, checkpoints: Sequence[Path]) -> Iterator[str]:
    """Yield a problem if the newest valid checkpoint has steps that the journal lacks, or continues at other data.

    The journal has a checkpoint's steps on disk before the checkpoint exists, so `checkpoints`, the newest first, must
    have been listed before the journal was read. Those that were removed since are skipped.
    """
    for checkpoint in checkpoints:
        step = step_of(checkpoint) or 0
        if step > books.last_step:
            if find_damage(checkpoint) is None:
                yield (
                    f"there is a checkpoint of step {step}, but the journal ends at step {books.last_step}: it was "
                    "cut short"
                )
                return
            continue
        try:
            cursor = int(read_document(checkpoint / STATE_NAME)["cursor"])
        except (OSError, UserError, KeyError, TypeError, ValueError):
            continue  # damaged, or dropped
        if books.checkpoints.get(step, cursor) != cursor:
            yield f"the checkpoint of step {step} continues at data step {cursor}, not {books.checkpoints[step]}"
        return


def check_digests(books: Books, reader: LaneReader, steps: Sequence[int]) -> Iterator[str]:
    """Read what `steps` consumed from the shards; says where it is not what their digests tell."""
    for step in steps:
        made = books.steps[step]
        if step_digest(reader, made.cursor) != made.digest:
            yield f"step {step}: the shards' tokens of data step {made.cursor} are not those that it read"


def step_digest(reader: LaneReader, cursor: int) -> int:
    """The sum over lanes of the CRC-32 of their tokens (int32, little-endian), begun with the lane's number."""
    tokens = (reader.segment(cursor, lane).tokens_L for lane in range(reader.lanes))
    return sum(zlib.crc32(tokens_L.astype("<i4").tobytes(), lane) for lane, tokens_L in enumerate(tokens))


def _epochs_before(reader: LaneReader, end: int) -> list[Epoch]:
    """Those that begin before data step `end`."""
    epochs: list[Epoch] = []
    first = 0
    while first < end:
        epochs.append(reader.epoch_of(first))
        first = epochs[-1].end_step
    return epochs


def _disorder(books: Books) -> Iterable[str]:
    """Steps that consume earlier data than the one before, and checkpoints that go on at another place."""
    made = list(books.steps.values())
    for earlier, later in zip(made, made[1:], strict=False):
        if later.cursor <= earlier.cursor:
            yield f"step {later.step} consumed data step {later.cursor}, step {earlier.step} data step {earlier.cursor}"
    for step, cursor in books.checkpoints.items():
        after = books.steps.get(step + 1)
        # A rewind behind the checkpoint may have moved the next step on.
        if step not in books.steps or cursor <= books.steps[step].cursor or (after and after.cursor < cursor):
            yield (
                f"the checkpoint of step {step} continues at data step {cursor}, which does not follow the data that "
                "it consumed"
            )


def _overlaps(reader: LaneReader, epoch: Epoch) -> Iterable[str]:
    """Lanes whose slice of an epoch does not begin where the one before ends."""
    last_step = epoch.end_step - 1
    for lane in range(1, reader.lanes):
        end = reader.block_ranges(last_step, lane - 1)[-1]
        begin = reader.block_ranges(epoch.first_step, lane)[0]
        if not _adjoin(end, begin):
            yield f"data steps {epoch.first_step} to {last_step}: lane {lane} does not begin where lane {lane - 1} ends"


def _adjoin(end: BlockRange, begin: BlockRange) -> bool:
    if (end.number, end.reading) == (begin.number, begin.reading):
        return end.start + end.num_tokens == begin.start
    return end.start + end.num_tokens == end.block.num_tokens and begin.start == 0
