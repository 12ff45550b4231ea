"""Lanes: the corpus as L parallel streams whose place is the step number.

The blocks of an epoch stand in an order that is a pure function of (seed, epoch). The concatenated stream is cut
into L equal slices; lane l at step t of the epoch reads tokens [t*S, (t+1)*S) of its slice. What does not fill a
whole step of all lanes is left out of that epoch.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from data_prep.prepared import Block, BlockEntry, PreparedCorpus
from pretrain.randomness import keyed_generator

_NUMBERS_PER_BLOCK = 1 << 20
"""Of groups and of documents; a block has fewer of each."""


@dataclass(frozen=True)
class LaneSegment:
    """S consecutive tokens of one lane, the document group and the document of each; int64 [S].

    Numbers of groups and documents are of one run: no two epochs or blocks share one.
    """

    tokens_L: NDArray[np.int64]
    group_L: NDArray[np.int64]
    document_L: NDArray[np.int64]


@dataclass(frozen=True)
class BlockRange:
    """`num_tokens` tokens of a block, from position `start` on; `number` is the block's in its split."""

    number: int
    block: BlockEntry
    start: int
    num_tokens: int


@dataclass(frozen=True)
class _OpenBlock:
    """A block's tokens and where its documents and its document groups (runs of one repository) start."""

    tokens: NDArray[np.unsignedinteger]
    group_starts: NDArray[np.int64]
    document_starts: NDArray[np.int64]


class LaneReader:
    """Reads any lane at any step; holds no position. Blocks are opened once, verified, and memory-mapped."""

    def __init__(
        self,
        corpus: PreparedCorpus,
        split: str,
        lanes: int,
        segment_tokens: int,
        seed: int,
        shuffle: bool = True,
    ) -> None:
        self._corpus = corpus
        self._entries: list[BlockEntry] = corpus.blocks(split)
        self._seed, self._shuffle = seed, shuffle
        self.lanes, self.segment_tokens = lanes, segment_tokens
        self.num_tokens = sum(entry.num_tokens for entry in self._entries)
        self.steps_per_epoch = self.num_tokens // (lanes * segment_tokens)
        if self.steps_per_epoch == 0:
            raise UserError(
                f"{corpus.folder}: split '{split}' has {self.num_tokens} tokens, fewer than one step of "
                f"{lanes} lanes x {segment_tokens} tokens: use a larger corpus, fewer lanes or shorter segments"
            )
        self._open_blocks: dict[int, _OpenBlock] = {}
        self._epoch_starts: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def segment(self, step: int, lane: int) -> LaneSegment:
        """What lane `lane` reads at step `step` (0-based, counted over all epochs)."""
        epoch = step // self.steps_per_epoch
        tokens_parts, group_parts, document_parts = [], [], []
        for place in self.places(step, lane):
            block = self._open(place.number)
            index = np.arange(place.start, place.start + place.num_tokens)
            first_number = (epoch * len(self._entries) + place.number) * _NUMBERS_PER_BLOCK
            tokens_parts.append(block.tokens[place.start : place.start + place.num_tokens].astype(np.int64))
            group_parts.append(first_number + np.searchsorted(block.group_starts, index, side="right"))
            document_parts.append(first_number + np.searchsorted(block.document_starts, index, side="right"))
        return LaneSegment(*map(np.concatenate, (tokens_parts, group_parts, document_parts)))

    def places(self, step: int, lane: int) -> list[BlockRange]:
        """Where the tokens of `segment` lie, in order; opens no block."""
        epoch, step_in_epoch = divmod(step, self.steps_per_epoch)
        order, starts = self._epoch_order(epoch)
        begin = (lane * self.steps_per_epoch + step_in_epoch) * self.segment_tokens
        end = begin + self.segment_tokens
        place = int(np.searchsorted(starts, begin, side="right")) - 1
        found = []
        while begin < end:
            number = int(order[place])
            entry = self._entries[number]
            offset = begin - int(starts[place])
            take = min(end - begin, entry.num_tokens - offset)
            found.append(BlockRange(number, entry, offset, take))
            begin, place = begin + take, place + 1
        return found

    def lane_tokens(self, lane: int, num_steps: int) -> NDArray[np.int64]:
        """Everything lane `lane` reads in steps [0, num_steps), at most one epoch."""
        steps = range(min(num_steps, self.steps_per_epoch))
        return np.concatenate([self.segment(step, lane).tokens_L for step in steps])

    def _epoch_order(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if epoch not in self._epoch_starts:
            order = np.arange(len(self._entries))
            if self._shuffle:
                order = keyed_generator(self._seed, "block order", epoch).permutation(len(self._entries))
            sizes = np.array([self._entries[number].num_tokens for number in order], dtype=np.int64)
            starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
            self._epoch_starts = {epoch: (order, starts)}
        return self._epoch_starts[epoch]

    def _open(self, number: int) -> _OpenBlock:
        if number not in self._open_blocks:
            block = self._corpus.read_block(self._entries[number])
            document_starts = np.asarray(block.doc_starts, dtype=np.int64)
            self._open_blocks[number] = _OpenBlock(block.tokens, _group_starts(block), document_starts)
        return self._open_blocks[number]


def _group_starts(block: Block) -> NDArray[np.int64]:
    """Token offsets in the block at which another repository begins."""
    keys = [(document.source, document.repository) for document in block.docs]
    first = [index for index, key in enumerate(keys) if index == 0 or key != keys[index - 1]]
    return np.asarray(block.doc_starts, dtype=np.int64)[first]
