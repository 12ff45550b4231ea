"""Fixed-shape batches: lanes' segments with their orders.

Shapes: B lanes, L segment, P predicted.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pretrain.data.lanes import LaneReader
from pretrain.model.places import Places
from pretrain.objective import left_to_right
from pretrain.orders import ObjectiveConfig, lane_order


@dataclass(frozen=True)
class Batch:
    """Tokens int64 [B, L] and their places, the places to predict [B, P] and the tokens wanted there."""

    tokens_BL: Tensor
    content: Places
    targets: Places
    wanted_BP: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The same batch on `device`."""
        return Batch(
            self.tokens_BL.to(device),
            self.content.to(device),
            self.targets.to(device),
            self.wanted_BP.to(device),
        )


def training_batch(
    reader: LaneReader, objective: ObjectiveConfig, seed: int, step: int, lanes: range
) -> Batch:
    """The segments of `lanes` at `step`, in the orders that (seed, step, lane) give."""
    segments = [reader.segment(step, lane) for lane in lanes]
    orders = [lane_order(objective, seed, step, lane, reader.segment_tokens) for lane in lanes]
    tokens_BL = torch.from_numpy(np.stack([segment.tokens_L for segment in segments]))
    group_BL = torch.from_numpy(np.stack([segment.group_L for segment in segments]))
    content = Places.in_order(torch.from_numpy(np.stack([order.rank_L for order in orders])), group_BL)
    target_BP = torch.from_numpy(np.stack([order.target_P for order in orders]))
    return Batch(tokens_BL, content, content.at(target_BP), tokens_BL.gather(1, target_BP))


def left_to_right_batch(reader: LaneReader, step: int, lanes: range) -> Batch:
    """The segments of `lanes` at `step`, every token predicted from those before it."""
    segments = [reader.segment(step, lane) for lane in lanes]
    tokens_BL = torch.from_numpy(np.stack([segment.tokens_L for segment in segments]))
    content = left_to_right(torch.from_numpy(np.stack([segment.group_L for segment in segments])))
    return Batch(tokens_BL, content, content, tokens_BL)
