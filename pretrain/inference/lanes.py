"""Lanes that go on from other lanes.

Shapes: B lanes, X those that move.
"""

import torch
from torch import Tensor


def moved_lanes(lane_B: Tensor) -> tuple[Tensor, Tensor]:
    """Of lanes i that go on from lane `lane_B[i]`, those that are not the same: (i, lane_B[i]), int64 [X] each."""
    to_X = (lane_B != torch.arange(len(lane_B), device=lane_B.device)).nonzero()[:, 0]
    return to_X, lane_B[to_X]
