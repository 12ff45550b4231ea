"""The blocks that an epoch reads and their order, a pure function of (seed, epoch).

A block of weight w is read w times per epoch. If w is not a whole number, the fraction is spread evenly: in e epochs
every block is read floor(w e) or ceil(w e) times, and each epoch reads the same share of the source's blocks, give or
take one. So a source of weight 0.25 is read once in four epochs, another quarter in each.

Shapes: N blocks, R readings of blocks.
"""

import bisect
import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pretrain.randomness import keyed_generator

_FRACTION_BITS = 32
"""Weights count in steps of 2^-32, so that sums over epochs are exact."""
_MAX_EMPTY_EPOCHS = 100
_KEPT_EPOCHS = 3


class TooFewTokensError(Exception):
    """All epochs have fewer tokens than one step needs."""


@dataclass(frozen=True)
class Epoch:
    """Steps [first_step, first_step + num_steps) of the run.

    It reads block `blocks_R[i]`, of `sizes_R[i]` tokens, from position `starts_R[i]` of its stream on. No two
    readings of a run share a number of `readings_R`.
    """

    first_step: int
    num_steps: int
    blocks_R: NDArray[np.int64]
    starts_R: NDArray[np.int64]
    sizes_R: NDArray[np.int64]
    readings_R: NDArray[np.int64]

    num_tokens: int
    """The tokens of all blocks, including those that fill no whole step."""

    @property
    def end_step(self) -> int:
        """The first step of the next epoch."""
        return self.first_step + self.num_steps

    def reading_at(self, position: int | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of the reading that contains each position of the stream."""
        return np.asarray(self.starts_R.searchsorted(position, side="right")) - 1

    def end(self, place: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the position in the stream where each of these readings ends."""
        return self.starts_R[place] + self.sizes_R[place]


class EpochPlan:
    """The epochs of a run that reads `step_tokens` tokens per step; what fills no whole step is left out.

    Pure: any two plans of the same arguments are equal, and a later step costs no more than an earlier one; with
    weights that are not whole, epochs differ in length, and one sum over the blocks is made for each before it.
    """

    def __init__(
        self,
        sizes_N: NDArray[np.int64],
        weights_N: NDArray[np.float64],
        sources_N: NDArray[np.int64],
        step_tokens: int,
        seed: int,
        shuffle: bool,
    ) -> None:
        scaled_N = np.rint(weights_N * 2.0**_FRACTION_BITS).astype(np.uint64)
        self._whole_N = (scaled_N >> _FRACTION_BITS).astype(np.int64)
        self._fraction_N = (scaled_N & (2**_FRACTION_BITS - 1)).astype(np.uint64)
        self._phase_N = _phases(sources_N, seed)
        self._sizes_N, self._step_tokens, self._seed, self._shuffle = sizes_N, step_tokens, seed, shuffle
        self._is_equal = not self._fraction_N.any()
        self._first_steps = [0]
        self._epochs: list[Epoch] = []
        self._lock = threading.Lock()

    def num_tokens(self, number: int) -> int:
        """Return the number of tokens of an epoch, including those that fill no whole step."""
        return int(self._num_readings_N(number) @ self._sizes_N)

    def epoch_of(self, step: int) -> Epoch:
        """Return the epoch of step `step` of the run. Raises TooFewTokensError when all epochs are too short."""
        with self._lock:
            for epoch in self._epochs:
                if epoch.first_step <= step < epoch.end_step:
                    return epoch
            number, first_step = self._place(step)
            epoch = self._epoch(number, first_step)
            self._epochs = [*self._epochs, epoch][-_KEPT_EPOCHS:]
            return epoch

    def _place(self, step: int) -> tuple[int, int]:
        """Return the number of the step's epoch and that epoch's first step."""
        if self._is_equal:
            num_steps = self._num_steps(0)
            if num_steps == 0:
                raise TooFewTokensError
            return step // num_steps, step // num_steps * num_steps
        num_empty = 0
        while self._first_steps[-1] <= step:
            num_steps = self._num_steps(len(self._first_steps) - 1)
            num_empty = num_empty + 1 if num_steps == 0 else 0
            if num_empty > _MAX_EMPTY_EPOCHS:
                raise TooFewTokensError
            self._first_steps.append(self._first_steps[-1] + num_steps)
        number = bisect.bisect_right(self._first_steps, step) - 1
        return number, self._first_steps[number]

    def _num_steps(self, number: int) -> int:
        return self.num_tokens(number) // self._step_tokens

    def _epoch(self, number: int, first_step: int) -> Epoch:
        blocks_R = np.repeat(np.arange(len(self._sizes_N)), self._num_readings_N(number))
        order_R = np.arange(len(blocks_R))
        if self._shuffle:
            order_R = keyed_generator(self._seed, "block order", number).permutation(len(blocks_R))
        sizes_R = self._sizes_N[blocks_R[order_R]]
        return Epoch(
            first_step=first_step,
            num_steps=self._num_steps(number),
            blocks_R=blocks_R[order_R],
            starts_R=np.cumsum(sizes_R) - sizes_R,
            sizes_R=sizes_R,
            num_tokens=int(sizes_R.sum()),
            readings_R=int(self._readings_before_N(number).sum()) + order_R,
        )

    def _num_readings_N(self, number: int) -> NDArray[np.int64]:
        return self._readings_before_N(number + 1) - self._readings_before_N(number)

    def _readings_before_N(self, number: int) -> NDArray[np.int64]:
        """Return how often each block is read in epochs [0, number)."""
        fractions_N = (self._fraction_N * np.uint64(number) + self._phase_N) >> np.uint64(_FRACTION_BITS)
        before_N: NDArray[np.int64] = self._whole_N * number + fractions_N.astype(np.int64)
        return before_N


def _phases(sources_N: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """Return the initial phase in [0, 1) of each block's count: evenly spaced in a source, shuffled; as 2^-32 steps."""
    phase_N = np.zeros(len(sources_N), np.uint64)
    for source in np.unique(sources_N):
        own = np.flatnonzero(sources_N == source)
        places = keyed_generator(seed, "mixture phase", int(source)).permutation(len(own)).astype(np.uint64)
        phase_N[own] = (places << np.uint64(_FRACTION_BITS)) // np.uint64(len(own))
    return phase_N
