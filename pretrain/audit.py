"""The audit: was every token before the cursor consumed exactly once?

The data of a data step is a pure function of the manifest, the seed and the step's number. So every token was consumed
once if the steps that made the model consumed data steps 0, 1, 2, ... once each, except those that rewinds skip, and if
the slices of an epoch's lanes adjoin without overlapping. Both are checked by numbers alone. Optionally the digests of
steps in the journal are compared with the shards' bytes.
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
from pretrain.journal.replay import Replay, SurvivingStep


@dataclass(frozen=True)
class DataHistory:
    """The data that a run read, from its journal."""

    steps: dict[int, SurvivingStep]
    """The steps that count by number, in order."""
    skipped: list[tuple[int, int]]
    """Half-open ranges of data steps that rewinds pass over."""
    checkpoints: dict[int, int]
    """The cursor of every checkpoint on the way to the last step, by step."""
    num_attempts: int
    num_remade: int
    """The number of steps that a kill or a rewind discarded."""
    problems: list[str]
    """Contradictions in the journal, one line each."""
    comparable_from_step: int
    """The first step from which on all steps read the newest corpus."""

    @property
    def last_step(self) -> int:
        """The last step that counts, 0 before the first."""
        return next(reversed(self.steps), 0)

    @property
    def comparable_steps(self) -> list[int]:
        """The steps that read the newest corpus."""
        return [step for step in self.steps if step >= self.comparable_from_step]


def read_history(records: Iterable[JournalRecord]) -> DataHistory:
    """Collect the data history from a journal."""
    reader = _HistoryReader()
    for record in records:
        reader.take(record)
    replay = reader.replay
    return DataHistory(
        steps=replay.surviving_steps(),
        skipped=reader.skipped,
        checkpoints={step: int(one.facts["cursor"]) for step, one in replay.checkpoints.items()},
        num_attempts=reader.num_starts,
        num_remade=reader.num_remade,
        problems=reader.problems,
        comparable_from_step=reader.comparable_from_step,
    )


@dataclass
class _HistoryReader:
    replay: Replay = field(default_factory=Replay)
    skipped: list[tuple[int, int]] = field(default_factory=list)
    num_starts: int = 0
    num_remade: int = 0
    problems: list[str] = field(default_factory=list)
    comparable_from_step: int = 0
    _corpus: str | None = None
    """The fingerprint of the newest corpus."""
    _earlier: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The cursor and digest of steps that a kill discarded: when they are repeated, they must read the same data."""

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
        for step, made in self.replay.surviving_steps().items():
            if step > start.step:
                self._earlier[step] = (made.cursor, made.digest)
        # Later steps may read other tokens than before: another corpus, or the newest one again.
        is_changed = self._corpus is not None and start.corpus != self._corpus
        if is_changed or start.step + 1 < self.comparable_from_step:
            self.comparable_from_step = start.step + 1
            self._earlier.clear()
        self._corpus = start.corpus

    def _look_at_step(self, step: int, position: int, read: tuple[int, int]) -> None:
        if step != position + 1:
            self.problems.append(f"step {step} follows step {position}")
        if self._earlier.pop(step, read) != read:
            self.problems.append(f"step {step} read other tokens when it was repeated after a kill")


_MAX_PROBLEMS = 20


@dataclass
class Audit:
    """The result of an audit; `problems` is empty when every token was consumed exactly once."""

    num_steps: int
    num_attempts: int
    num_remade_steps: int
    """Steps that kills and rewinds discarded."""
    num_unapplied_steps: int
    """Steps that count and read data, but did not change the weights: their loss or gradient was not finite."""
    tokens_consumed: int
    tokens_passed_over: int
    """Tokens in the ranges of data that rewinds skip."""
    tokens_lost: int
    """Tokens before the cursor that no step read and no rewind skipped."""
    tokens_repeated: int
    epochs_begun: int
    tail_tokens: int
    """Tokens at the ends of finished epochs, too few for a step of all lanes."""
    num_incomparable_steps: int = 0
    """Steps that count from before a change of the corpus, so their tokens and epochs are not known now."""
    num_digests_checked: int = 0
    problems: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return asdict(self) | {"balances": not self.problems}


def audit(history: DataHistory, reader: LaneReader) -> Audit:
    """Check a run's data history against the data that its steps must read; opens no block."""
    step_tokens = reader.lanes * reader.segment_tokens
    cursors = np.array([made.cursor for made in history.steps.values()], dtype=np.int64)
    end = int(cursors.max()) + 1 if len(cursors) else 0
    passed = {cursor for start, stop in history.skipped for cursor in range(start, stop) if cursor < end}
    surplus = np.bincount(cursors, minlength=end) - 1
    surplus[sorted(passed)] += 1
    epochs = _epochs_before(reader, end)
    problems = [
        *history.problems,
        *(f"data step {cursor} was consumed by no step" for cursor in np.flatnonzero(surplus < 0)),
        *(f"data step {cursor} was consumed more than once" for cursor in np.flatnonzero(surplus > 0)),
        *_out_of_order(history),
        *(problem for epoch in epochs for problem in _overlaps(reader, epoch)),
    ]
    return Audit(
        num_steps=len(history.steps),
        num_attempts=history.num_attempts,
        num_remade_steps=history.num_remade,
        num_unapplied_steps=sum(not made.applied for made in history.steps.values()),
        tokens_consumed=len(cursors) * step_tokens,
        tokens_passed_over=len(passed) * step_tokens,
        tokens_lost=int(-surplus[surplus < 0].sum()) * step_tokens,
        tokens_repeated=int(surplus[surplus > 0].sum()) * step_tokens,
        epochs_begun=len(epochs),
        tail_tokens=sum(
            epoch.num_tokens - epoch.num_steps * step_tokens for epoch in epochs if epoch.end_step <= end
        ),
        num_incomparable_steps=len(history.steps) - len(history.comparable_steps),
        problems=problems[:_MAX_PROBLEMS]
        + ([f"and {len(problems) - _MAX_PROBLEMS} more"] * (len(problems) > _MAX_PROBLEMS)),
    )


def missing_steps(history: DataHistory, checkpoints: Sequence[Path]) -> Iterator[str]:
    """Yield a problem if the newest valid checkpoint has steps that the journal lacks, or continues at other data.

    The journal has a checkpoint's steps on disk before the checkpoint exists, so `checkpoints`, the newest first, must
    have been listed before the journal was read. Those that were removed since are skipped.
    """
    for checkpoint in checkpoints:
        step = step_of(checkpoint) or 0
        if step > history.last_step:
            if find_damage(checkpoint) is None:
                yield (
                    f"there is a checkpoint of step {step}, but the journal ends at step {history.last_step}: it was "
                    "cut short"
                )
                return
            continue
        try:
            cursor = int(read_document(checkpoint / STATE_NAME)["cursor"])
        except (OSError, UserError, KeyError, TypeError, ValueError):
            continue  # damaged, or removed since
        if history.checkpoints.get(step, cursor) != cursor:
            yield f"the checkpoint of step {step} continues at data step {cursor}, not {history.checkpoints[step]}"
        return


def check_digests(history: DataHistory, reader: LaneReader, steps: Sequence[int]) -> Iterator[str]:
    """Read the tokens of `steps` from the shards; yield a line for each step whose digest differs."""
    for step in steps:
        made = history.steps[step]
        if step_digest(reader, made.cursor) != made.digest:
            yield f"step {step}: the shards' tokens of data step {made.cursor} are not those that it read"


def step_digest(reader: LaneReader, cursor: int) -> int:
    """Return the sum over lanes of the CRC-32 of their tokens (little-endian int32), started with the lane."""
    tokens = (reader.segment(cursor, lane).tokens_L for lane in range(reader.lanes))
    return sum(zlib.crc32(tokens_L.astype("<i4").tobytes(), lane) for lane, tokens_L in enumerate(tokens))


def _epochs_before(reader: LaneReader, end: int) -> list[Epoch]:
    """Return the epochs that begin before data step `end`."""
    epochs: list[Epoch] = []
    first = 0
    while first < end:
        epochs.append(reader.epoch_of(first))
        first = epochs[-1].end_step
    return epochs


def _out_of_order(history: DataHistory) -> Iterable[str]:
    """Yield a line for steps that consume earlier data than their predecessors, and checkpoints with another cursor."""
    made = list(history.steps.values())
    for earlier, later in zip(made, made[1:], strict=False):
        if later.cursor <= earlier.cursor:
            yield f"step {later.step} consumed data step {later.cursor}, step {earlier.step} data step {earlier.cursor}"
    for step, cursor in history.checkpoints.items():
        after = history.steps.get(step + 1)
        # A rewind after the checkpoint may have moved the next step on.
        if (
            step not in history.steps
            or cursor <= history.steps[step].cursor
            or (after and after.cursor < cursor)
        ):
            yield (
                f"the checkpoint of step {step} continues at data step {cursor}, which does not follow the data that "
                "it consumed"
            )


def _overlaps(reader: LaneReader, epoch: Epoch) -> Iterable[str]:
    """Yield a line for each lane whose slice of an epoch does not begin where the previous lane's ends."""
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
