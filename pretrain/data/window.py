"""What some lanes read in some consecutive steps.

Shapes: T steps, B lanes, L segment.
"""

import itertools
import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from data_prep.tokenizer import TokenArray


@dataclass(frozen=True)
class LaneBatch:
    """One step of some lanes: tokens, and for each its document group and its document; int64 [B, L].

    `crc_B` is of each lane's tokens as little-endian int32, begun with the lane's number. `wait_s` is how long
    whoever asked for the batch stood still.
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
        """Sum of the lanes' checksums: what workers that share the lanes can add up."""
        return sum(self.crc_B)

    def part(self, start: int, stop: int) -> "LaneBatch":
        """The lanes at places [start, stop) of this batch."""
        return LaneBatch(
            self.cursor,
            self.lanes[start:stop],
            self.tokens_BL[start:stop],
            self.group_BL[start:stop],
            self.document_BL[start:stop],
            self.crc_B[start:stop],
            self.wait_s,
        )


@dataclass(frozen=True)
class LaneWindow:
    """Steps [first_step, first_step + T) of some lanes; [T, B, L], a step's arrays in one piece of memory."""

    first_step: int
    lanes: range
    tokens_TBL: NDArray[np.int32]
    """Little-endian, as checksums are made of them."""
    group_TBL: NDArray[np.int64]
    document_TBL: NDArray[np.int64]

    @classmethod
    def empty(cls, num_steps: int, lanes: range, segment_tokens: int) -> "LaneWindow":
        """Memory for a window that is to be filled."""
        shape = num_steps, len(lanes), segment_tokens
        return cls(0, lanes, np.empty(shape, "<i4"), np.empty(shape, np.int64), np.empty(shape, np.int64))

    def begin(self, first_step: int, num_steps: int) -> "LaneWindow":
        """The same memory for steps [first_step, first_step + num_steps), at most as many as it has."""
        arrays = self.tokens_TBL[:num_steps], self.group_TBL[:num_steps], self.document_TBL[:num_steps]
        return LaneWindow(first_step, self.lanes, *arrays)

    def fill(
        self, place: int, tokens_X: TokenArray, group_X: NDArray[np.int64], document_X: NDArray[np.int64]
    ) -> None:
        """Set all steps of the lane at `place`; X = T L."""
        shape = self.tokens_TBL.shape[0], self.tokens_TBL.shape[2]
        self.tokens_TBL[:, place] = tokens_X.reshape(shape)
        self.group_TBL[:, place] = group_X.reshape(shape)
        self.document_TBL[:, place] = document_X.reshape(shape)

    @property
    def steps(self) -> range:
        """The steps of the run that are in it."""
        return range(self.first_step, self.first_step + len(self.tokens_TBL))

    def batch(self, cursor: int, wait_s: float = 0.0) -> LaneBatch:
        """One of its steps, as a copy."""
        t = cursor - self.first_step
        tokens_BL = self.tokens_TBL[t].astype(np.int64)
        group_BL, document_BL = self.group_TBL[t].copy(), self.document_TBL[t].copy()
        return LaneBatch(cursor, self.lanes, tokens_BL, group_BL, document_BL, self.crc_TB[t], wait_s)

    @cached_property
    def crc_TB(self) -> list[tuple[int, ...]]:
        """`LaneBatch.crc_B` of every step."""
        num_steps, num_lanes, segment_tokens = self.tokens_TBL.shape
        data, size = self.tokens_TBL.data.cast("B"), segment_tokens * self.tokens_TBL.itemsize
        rows = [data[start : start + size] for start in range(0, len(data), size)]
        crcs = list(map(zlib.crc32, rows, itertools.cycle(self.lanes)))
        return [tuple(crcs[start : start + num_lanes]) for start in range(0, len(crcs), num_lanes)]
