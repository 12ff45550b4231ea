"""The blocks that lanes are reading: opened ahead, verified, and closed when they were not used for long."""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_prep.finished.prepared import Block
from data_prep.tokenizer import TokenArray
from pretrain.data.corpora import MixedBlocks

_MAX_READERS = 16


@dataclass(frozen=True)
class OpenBlock:
    """A block's tokens, where each of its D documents starts and the last one ends [D + 1], and the number of each
    document's group (a run of one repository) [D], counted from 1."""

    tokens: TokenArray
    document_bounds: NDArray[np.int64]
    group_of_document: NDArray[np.int64]
    mark: Hashable
    """Of the tar before it was read; another one means that it must be verified again."""

    @classmethod
    def of(cls, block: Block, mark: Hashable) -> "OpenBlock":
        """Make it from a block."""
        bounds = np.append(block.doc_starts, len(block.tokens))
        groups = np.searchsorted(block.group_starts, block.doc_starts, side="right")
        return cls(block.tokens, bounds, groups, mark)

    def numbers(self, begin: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the group and the document of each token of [begin, end), both counted from 1."""
        first, last = self.document_bounds.searchsorted((begin, end - 1), side="right")
        cuts = self.document_bounds[first - 1 : last + 1].copy()
        cuts[0], cuts[-1] = begin, end
        num_tokens = cuts[1:] - cuts[:-1]
        groups = self.group_of_document[first - 1 : last].repeat(num_tokens)
        return groups, np.arange(first, last + 1).repeat(num_tokens)


class OpenBlocks:
    """Blocks by their number in the mixture; at most as many stay open as `keep` allows.

    Threads may share it. A block that cannot be read raises UserError in `block`, not in `request`.
    """

    def __init__(self, blocks: MixedBlocks) -> None:
        self._blocks = blocks
        self._pool = ThreadPoolExecutor(min(_MAX_READERS, blocks.num_readers), "blocks")
        self._opening: OrderedDict[int, Future[OpenBlock]] = OrderedDict()
        self._max_open = 1
        self._lock = threading.Lock()

    def keep(self, num_blocks: int) -> None:
        """Keep at least `num_blocks` open from now on."""
        self._max_open = max(self._max_open, num_blocks)

    def request(self, numbers: Iterable[int]) -> None:
        """Open these blocks in the background, unless they are open."""
        for number in numbers:
            self._future(number)

    def block(self, number: int) -> OpenBlock:
        """Return an open block; it is verified again if its tar has changed since."""
        block = self._opened(number)
        _, corpus, entry = self._blocks.find(number)
        if corpus.mark(entry) != block.mark:
            with self._lock:
                self._opening.pop(number, None)
            block = self._opened(number)
        return block

    def read(self, number: int) -> Block:
        """Read a block with its documents; it does not stay open."""
        _, corpus, entry = self._blocks.find(number)
        return corpus.read_block(entry)

    def _future(self, number: int) -> Future[OpenBlock]:
        with self._lock:
            if number not in self._opening:
                self._opening[number] = self._pool.submit(self._open, number)
            self._opening.move_to_end(number)
            while len(self._opening) > self._max_open:
                self._opening.popitem(last=False)
            return self._opening[number]

    def _opened(self, number: int) -> OpenBlock:
        future = self._future(number)
        try:
            return future.result()
        except BaseException:
            with self._lock:
                self._opening.pop(number, None)
            raise

    def _open(self, number: int) -> OpenBlock:
        _, corpus, entry = self._blocks.find(number)
        mark = corpus.mark(entry)
        return OpenBlock.of(corpus.read_block(entry), mark)
