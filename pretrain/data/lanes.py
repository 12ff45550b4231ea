"""Lanes: the corpus as L parallel streams whose position is the step number.

The blocks of an epoch stand in an order that is a pure function of (seed, epoch). The concatenated stream is cut
into L equal slices; lane l at step t of the epoch reads tokens [t*S, (t+1)*S) of its slice. What does not fill a
whole step of all lanes is left out of that epoch.

Shapes: T steps, B lanes, L segment.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from data_prep.finished.prepared import BlockEntry, PreparedCorpus
from data_prep.tokenizer import TokenArray
from pretrain.data.blocks import OpenBlocks
from pretrain.data.corpora import MixedBlocks, WeightedCorpus
from pretrain.data.epochs import Epoch, EpochPlan, TooFewTokensError


@dataclass(frozen=True)
class LaneBatch:
    """The tokens of some lanes at one step, with the document group and the document of each; int64 [B, L].

    `crc_B` is the CRC-32 of each lane's tokens as little-endian int32, started with the lane's number. `wait_s` is how
    long the caller waited for the batch.
    """

    cursor: int
    lanes: range
    tokens_BL: NDArray[np.int64]
    group_BL: NDArray[np.int64]
    document_BL: NDArray[np.int64]
    crc_B: tuple[int, ...]
    wait_s: float = 0.0

    @property
    def digest(self) -> int:
        """The sum of the lanes' checksums, which can be added up over workers."""
        return sum(self.crc_B)


@dataclass(frozen=True)
class LaneWindow:
    """Steps [first_step, first_step + T) of some lanes; int64 [T, B, L], a step's arrays in one piece of memory."""

    first_step: int
    lanes: range
    tokens_TBL: NDArray[np.int64]
    group_TBL: NDArray[np.int64]
    document_TBL: NDArray[np.int64]
    crc_BT: list[list[int]]
    """The checksums of the steps of each filled lane, as in `LaneBatch`."""

    @classmethod
    def empty(cls, first_step: int, num_steps: int, lanes: range, segment_tokens: int) -> "LaneWindow":
        """Make a window whose lanes `fill` sets one after the other."""
        # One array: from 4 MB on numpy uses huge pages, without which half of the time goes to page faults.
        arrays = np.empty((3, num_steps, len(lanes), segment_tokens), np.int64)
        return cls(first_step, lanes, arrays[0], arrays[1], arrays[2], [])

    def fill(self, tokens_X: TokenArray, group_X: NDArray[np.int64], document_X: NDArray[np.int64]) -> None:
        """Set all steps of the next lane; X = T * L."""
        place, num_steps, segment_tokens = len(self.crc_BT), len(self.steps), self.tokens_TBL.shape[2]
        tokens_TL = tokens_X.astype("<i4").reshape(num_steps, segment_tokens)
        self.tokens_TBL[:, place] = tokens_TL
        self.group_TBL[:, place] = group_X.reshape(num_steps, segment_tokens)
        self.document_TBL[:, place] = document_X.reshape(num_steps, segment_tokens)
        data, size = tokens_TL.data.cast("B"), segment_tokens * tokens_TL.itemsize
        lane = self.lanes[place]
        self.crc_BT.append(
            [zlib.crc32(data[start : start + size], lane) for start in range(0, len(data), size)]
        )

    @property
    def steps(self) -> range:
        """The steps of the run in this window."""
        return range(self.first_step, self.first_step + len(self.tokens_TBL))

    def batch(self, cursor: int, wait_s: float = 0.0) -> LaneBatch:
        """Return one step; its arrays are views of the window's."""
        t = cursor - self.first_step
        arrays = self.tokens_TBL[t], self.group_TBL[t], self.document_TBL[t]
        return LaneBatch(cursor, self.lanes, *arrays, tuple(crc_T[t] for crc_T in self.crc_BT), wait_s)


_NUMBERS_PER_READING = 1 << 20
"""How many numbers of groups and documents a reading gets; the next power of two if a block has more documents."""
_SPARE_BLOCKS = 16


@dataclass(frozen=True)
class LaneSegment:
    """L consecutive tokens of one lane, with the document group and the document of each; int64 [L].

    Numbers of groups and documents are unique in a run: no two readings of a block share one.
    """

    tokens_L: NDArray[np.int64]
    group_L: NDArray[np.int64]
    document_L: NDArray[np.int64]


@dataclass(frozen=True)
class BlockRange:
    """`num_tokens` tokens of a block, from position `start` on; `number` is the block's in its split of all corpora.

    `corpus_number` is the number of its corpus, `reading` another one each time the run reads the block.
    """

    number: int
    block: BlockEntry
    start: int
    num_tokens: int
    corpus_number: int = 0
    reading: int = 0


class LaneReader:
    """Reads any lanes at any step; holds no position. Blocks are verified whenever they are opened.

    Weights count in the shuffled order only; without `shuffle` every block comes once an epoch, in the order of the
    corpora. Threads may share a reader. UserError when an epoch has fewer tokens than one step.
    """

    def __init__(
        self,
        corpus: PreparedCorpus | Sequence[WeightedCorpus],
        split: str,
        lanes: int,
        segment_tokens: int,
        seed: int,
        shuffle: bool = True,
    ) -> None:
        corpora = [WeightedCorpus(corpus)] if isinstance(corpus, PreparedCorpus) else corpus
        self._blocks = MixedBlocks(corpora, split)
        self._open_blocks = OpenBlocks(self._blocks)
        self.lanes, self.segment_tokens = lanes, segment_tokens
        weights_N = self._blocks.weights_N if shuffle else np.ones(len(self._blocks))
        self._epochs = EpochPlan(
            self._blocks.sizes_N, weights_N, self._blocks.sources_N, lanes * segment_tokens, seed, shuffle
        )
        self.num_tokens = self._epochs.num_tokens(0)
        """The tokens of the first epoch; with fractional weights, other epochs have a few more or less."""
        try:
            self.steps_per_epoch = self._epochs.epoch_of(0).num_steps
        except TooFewTokensError:
            where = ", ".join(part.corpus.location for part in corpora)
            raise UserError(
                f"{where}: split '{split}' has {self.num_tokens} tokens, fewer than one step of "
                f"{lanes} lanes x {segment_tokens} tokens: use a larger corpus, fewer lanes or shorter segments"
            ) from None
        self._numbers_per_reading = max(_NUMBERS_PER_READING, 1 << self._blocks.max_documents.bit_length())

    def segment(self, step: int, lane: int) -> LaneSegment:
        """Read the segment of lane `lane` at step `step` (0-based, counted over all epochs)."""
        batch = self.batch(step, range(lane, lane + 1))
        return LaneSegment(batch.tokens_BL[0], batch.group_BL[0], batch.document_BL[0])

    def batch(self, step: int, lanes: range) -> LaneBatch:
        """Read the batch of `lanes` at step `step`."""
        return self.window(step, 1, lanes).batch(step)

    def window(self, step: int, num_steps: int, lanes: range) -> LaneWindow:
        """Read `num_steps` steps of `lanes` from step `step` on, or fewer if the epoch ends.

        Raises UserError with the tar and the block that cannot be read.
        """
        epoch = self._epochs.epoch_of(step)
        num_steps = min(num_steps, epoch.end_step - step)
        ranges_B = [self._ranges(epoch, step, num_steps, lane) for lane in lanes]
        numbers = [part.number for ranges in ranges_B for part in ranges]
        self._open_blocks.keep(len(numbers) + len(lanes) + _SPARE_BLOCKS)
        self._open_blocks.request(numbers)
        window = LaneWindow.empty(step, num_steps, lanes, self.segment_tokens)
        for ranges in ranges_B:
            tokens, groups, documents = zip(*map(self._arrays, ranges), strict=True)
            window.fill(_joined(tokens), _joined(groups), _joined(documents))
        return window

    def open_ahead(self, step: int, lanes: range) -> None:
        """Open in the background, for each lane, the block after the one that it reads before step `step`."""
        epoch = self._epochs.epoch_of(step - 1)
        slice_tokens = epoch.num_steps * self.segment_tokens
        lanes_B = np.arange(lanes.start, lanes.stop)
        now_B = lanes_B * slice_tokens + (step - 1 - epoch.first_step) * self.segment_tokens
        following_B = epoch.reading_at(now_B) + 1
        is_last_B = epoch.end(following_B - 1) >= (lanes_B + 1) * slice_tokens
        self._open_blocks.request(epoch.blocks_R[following_B[~is_last_B]])
        if is_last_B.any():
            epoch = self._epochs.epoch_of(epoch.end_step)
            first_B = lanes_B[is_last_B] * (epoch.num_steps * self.segment_tokens)
            self._open_blocks.request(epoch.blocks_R[epoch.reading_at(first_B)])

    def block_ranges(self, step: int, lane: int) -> list[BlockRange]:
        """Return the ranges of blocks that `segment` consists of, in order; opens no block."""
        return self._ranges(self._epochs.epoch_of(step), step, 1, lane)

    def epoch_of(self, step: int) -> Epoch:
        """Return the epoch of step `step`; opens no block."""
        return self._epochs.epoch_of(step)

    def documents(self, step: int, lane: int) -> list[str]:
        """Return the ids of the documents that `segment` has tokens of, in order."""
        found: list[str] = []
        for part in self.block_ranges(step, lane):
            block = self._open_blocks.read(part.number)
            first, last = np.searchsorted(
                block.doc_starts, (part.start, part.start + part.num_tokens - 1), "right"
            )
            found += [document.id for document in block.docs[first - 1 : last]]
        return found

    def lane_tokens(self, lane: int, num_steps: int) -> NDArray[np.int64]:
        """Return all tokens of lane `lane` in steps [0, num_steps), at most one epoch."""
        epoch = self._epochs.epoch_of(0)
        ranges = self._ranges(epoch, 0, min(num_steps, epoch.num_steps), lane)
        parts = [self._open_blocks.block(r.number).tokens[r.start : r.start + r.num_tokens] for r in ranges]
        return np.concatenate(parts).astype(np.int64)

    def _ranges(self, epoch: Epoch, step: int, num_steps: int, lane: int) -> list[BlockRange]:
        begin = (lane * epoch.num_steps + step - epoch.first_step) * self.segment_tokens
        end = begin + num_steps * self.segment_tokens
        place = int(epoch.reading_at(begin))
        found = []
        while begin < end:
            number = int(epoch.blocks_R[place])
            corpus_number, _, entry = self._blocks.find(number)
            start = begin - int(epoch.starts_R[place])
            num_tokens = min(end - begin, entry.num_tokens - start)
            reading = int(epoch.readings_R[place])
            found.append(BlockRange(number, entry, start, num_tokens, corpus_number, reading))
            begin, place = begin + num_tokens, place + 1
        return found

    def _arrays(self, part: BlockRange) -> tuple[TokenArray, NDArray[np.int64], NDArray[np.int64]]:
        """Return the tokens, groups and documents of a range."""
        block, end = self._open_blocks.block(part.number), part.start + part.num_tokens
        groups, documents = block.numbers(part.start, end)
        first_number = part.reading * self._numbers_per_reading
        groups += first_number
        documents += first_number
        return block.tokens[part.start : end], groups, documents


def _joined(pieces: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
