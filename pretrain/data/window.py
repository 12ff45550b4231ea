"""What some lanes read in some consecutive steps.

Shapes: T steps, B lanes, L segment.
"""

import zlib
from dataclasses import dataclass

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


@dataclass(frozen=True)
class LaneWindow:
    """Steps [first_step, first_step + T) of some lanes; int64 [T, B, L], a step's arrays in one piece of memory."""

    first_step: int
    lanes: range
    tokens_TBL: NDArray[np.int64]
    group_TBL: NDArray[np.int64]
    document_TBL: NDArray[np.int64]
    crc_BT: list[list[int]]
    """Of each lane that is filled the checksums of its steps, as in `LaneBatch`."""

    @classmethod
    def empty(cls, first_step: int, num_steps: int, lanes: range, segment_tokens: int) -> "LaneWindow":
        """A window whose lanes are all to be filled, in their order."""
        # One piece: from 4 MB on numpy asks for huge pages, without which half of the time goes to page faults.
        arrays = np.empty((3, num_steps, len(lanes), segment_tokens), np.int64)
        return cls(first_step, lanes, arrays[0], arrays[1], arrays[2], [])

    def fill(self, tokens_X: TokenArray, group_X: NDArray[np.int64], document_X: NDArray[np.int64]) -> None:
        """Set all steps of the next lane; X = T L."""
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
        """The steps of the run that are in it."""
        return range(self.first_step, self.first_step + len(self.tokens_TBL))

    def batch(self, cursor: int, wait_s: float = 0.0) -> LaneBatch:
        """One of its steps; the arrays are parts of the window's."""
        t = cursor - self.first_step
        arrays = self.tokens_TBL[t], self.group_TBL[t], self.document_TBL[t]
        return LaneBatch(cursor, self.lanes, *arrays, tuple(crc_T[t] for crc_T in self.crc_BT), wait_s)
