"""What some lanes read in some consecutive steps.

Shapes: T steps, B lanes, L segment.
"""

import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


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
    """Steps [first_step, first_step + T) of some lanes; int64 [T, B, L], a step's arrays in one piece of memory."""

    first_step: int
    lanes: range
    tokens_TBL: NDArray[np.int64]
    group_TBL: NDArray[np.int64]
    document_TBL: NDArray[np.int64]

    @property
    def steps(self) -> range:
        """The steps of the run that are in it."""
        return range(self.first_step, self.first_step + len(self.tokens_TBL))

    def batch(self, cursor: int, wait_s: float = 0.0) -> LaneBatch:
        """One of its steps, as views."""
        t = cursor - self.first_step
        arrays = self.tokens_TBL[t], self.group_TBL[t], self.document_TBL[t]
        return LaneBatch(cursor, self.lanes, *arrays, self.crc_TB[t], wait_s)

    @cached_property
    def crc_TB(self) -> tuple[tuple[int, ...], ...]:
        """`LaneBatch.crc_B` of every step."""
        return tuple(
            tuple(zlib.crc32(row_L, lane) for row_L, lane in zip(step_BL, self.lanes, strict=True))
            for step_BL in self.tokens_TBL.astype("<i4")
        )
