"""Fixed-shape batches: lanes' segments with their orders.

Shapes: B lanes, L segment, P predicted.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pretrain.data.lanes import LaneReader
from pretrain.objective import left_to_right
from pretrain.orders import ObjectiveConfig, lane_order


@dataclass(frozen=True)
class Batch:
    """int64 tokens, rank, group [B, L] and target positions [B, P]."""

    tokens_BL: Tensor
    rank_BL: Tensor
    group_BL: Tensor
    target_BP: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The same batch on `device`."""
        return Batch(
            *(part.to(device) for part in (self.tokens_BL, self.rank_BL, self.group_BL, self.target_BP))
        )


def training_batch(
    reader: LaneReader, objective: ObjectiveConfig, seed: int, step: int, lanes: range
) -> Batch:
    """The segments of `lanes` at `step`, in the orders that (seed, step, lane) give."""
    segments = [reader.segment(step, lane) for lane in lanes]
    orders = [lane_order(objective, seed, step, lane, reader.segment_tokens) for lane in lanes]
    return Batch(
        torch.from_numpy(np.stack([segment.tokens_L for segment in segments])),
        torch.from_numpy(np.stack([order.rank_L for order in orders])),
        torch.from_numpy(np.stack([segment.group_L for segment in segments])),
        torch.from_numpy(np.stack([order.target_P for order in orders])),
    )


def left_to_right_batch(reader: LaneReader, step: int, lanes: range) -> Batch:
    """The segments of `lanes` at `step`, every token predicted from those before it."""
    segments = [reader.segment(step, lane) for lane in lanes]
    rank_BL, target_BP = left_to_right(len(segments), reader.segment_tokens)
    return Batch(
        torch.from_numpy(np.stack([segment.tokens_L for segment in segments])),
        rank_BL,
        torch.from_numpy(np.stack([segment.group_L for segment in segments])),
        target_BP,
    )
