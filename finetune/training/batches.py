"""Micro-batches of examples of similar length, as a pure function of (seed, number).

Shapes: N examples.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pretrain.randomness import keyed_generator

_POOL_BATCHES = 32
"""Examples are sorted by length within pools of this many batches: lengths are similar, but batches vary."""


class Batches:
    """An endless sequence of micro-batches, epoch after epoch; every example occurs once in each epoch."""

    def __init__(self, lengths_tokens: Sequence[int], micro_batch_tokens: int, seed: int) -> None:
        """Make micro-batches of at most `micro_batch_tokens` tokens with padding, but at least one example."""
        self._length_N = np.maximum(np.asarray(lengths_tokens, dtype=np.int64), 1)
        assert len(self._length_N), "there must be examples"
        self._micro_batch_tokens, self._seed = micro_batch_tokens, seed
        self._epochs: list[list[NDArray[np.int64]]] = []
        """The epochs made so far; their numbers of batches differ."""

    def __getitem__(self, number: int) -> NDArray[np.int64]:
        """Return the examples of micro-batch `number`, counted over all epochs."""
        return self._epoch_of(number)[1]

    def epoch(self, number: int) -> int:
        """Return the epoch of micro-batch `number`, from 0."""
        return self._epoch_of(number)[0]

    def _epoch_of(self, number: int) -> tuple[int, NDArray[np.int64]]:
        epoch = 0
        while True:
            if epoch == len(self._epochs):
                self._epochs.append(self._make(epoch))
            batches = self._epochs[epoch]
            if number < len(batches):
                return epoch, batches[number]
            number -= len(batches)
            epoch += 1

    def _make(self, epoch: int) -> list[NDArray[np.int64]]:
        generator = keyed_generator(self._seed, "fit-epoch", epoch)
        order_N = generator.permutation(len(self._length_N))
        per_batch = max(1, int(self._micro_batch_tokens / self._length_N.mean()))
        batches = [
            batch
            for first in range(0, len(order_N), per_batch * _POOL_BATCHES)
            for batch in self._cut(order_N[first : first + per_batch * _POOL_BATCHES])
        ]
        return [batches[place] for place in generator.permutation(len(batches))]

    def _cut(self, pool: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Split a pool's examples, the short ones first, into as many batches as needed."""
        pool = pool[np.argsort(self._length_N[pool], kind="stable")]
        batches, first = [], 0
        for end in range(1, len(pool) + 1):
            # The pool is sorted, so the example at `end` would be the longest of the batch.
            if end == len(pool) or self._length_N[pool[end]] * (end + 1 - first) > self._micro_batch_tokens:
                batches.append(pool[first:end])
                first = end
        return batches
