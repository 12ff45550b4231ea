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
from cluster.storage import read_document
from pretrain.checkpoint.finding import STATE_NAME, problem_of
from pretrain.checkpoint.listing import step_of
from pretrain.data.epochs import Epoch
from pretrain.data.lanes import BlockRange, LaneReader
from pretrain.ledger.books import Books

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


def missing_steps(books: Books, commits: Sequence[Path]) -> Iterator[str]:
    """Steps of the newest sound commit that the journal does not know, or knows to have ended at other data.

    The journal has the steps of a commit on disk before there is the commit, so `commits`, the newest first, must have
    been listed before the journal was read. Those that were dropped since say nothing.
    """
    for commit in commits:
        step = step_of(commit) or 0
        if step > books.last_step:
            if problem_of(commit) is None:
                yield (
                    f"the checkpoint of step {step} is there, but the journal has steps up to {books.last_step} "
                    "only: it was cut short"
                )
                return
            continue
        try:
            cursor = int(read_document(commit / STATE_NAME)["cursor"])
        except (OSError, UserError, KeyError, TypeError, ValueError):
            continue  # damaged, or dropped
        if books.checkpoints.get(step, cursor) != cursor:
            yield f"the checkpoint of step {step} goes on at data step {cursor}, not {books.checkpoints[step]}"
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
    """Steps that consume earlier data than the one before, and commits that go on at another place."""
    made = list(books.steps.values())
    for earlier, later in zip(made, made[1:], strict=False):
        if later.cursor <= earlier.cursor:
            yield f"step {later.step} consumed data step {later.cursor}, step {earlier.step} data step {earlier.cursor}"
    for step, cursor in books.checkpoints.items():
        after = books.steps.get(step + 1)
        # A rewind behind the commit may have moved the next step on.
        if step not in books.steps or cursor <= books.steps[step].cursor or (after and after.cursor < cursor):
            yield f"the commit of step {step} goes on at data step {cursor}, which does not follow what it consumed"


def _overlaps(reader: LaneReader, epoch: Epoch) -> Iterable[str]:
    """Lanes whose slice of an epoch does not begin where the one before ends."""
    last_step = epoch.end_step - 1
    for lane in range(1, reader.lanes):
        end = reader.places(last_step, lane - 1)[-1]
        begin = reader.places(epoch.first_step, lane)[0]
        if not _adjoin(end, begin):
            yield f"data steps {epoch.first_step} to {last_step}: lane {lane} does not begin where lane {lane - 1} ends"


def _adjoin(end: BlockRange, begin: BlockRange) -> bool:
    if (end.number, end.reading) == (begin.number, begin.reading):
        return end.start + end.num_tokens == begin.start
    return end.start + end.num_tokens == end.block.num_tokens and begin.start == 0
