"""A random cut, then left to right.

Shapes: B lanes, L segment, P predicted.
"""

import torch

from pretrain.orders.draws import LaneDraws
from pretrain.orders.order import Orders

LEFT_TO_RIGHT_DRAWS = {"cut": 1}
"""Random numbers needed per lane."""


def left_to_right_orders(segment_tokens: int, num_targets: int, draws: LaneDraws) -> Orders:
    """What lies before the cut is context, the next P tokens are predicted left to right.

    Every token after these comes later in the order than the one before it, so that one P fits every cut.
    """
    cut_B1 = draws.below("cut", segment_tokens - num_targets + 1)
    index_L = torch.arange(segment_tokens, device=draws.device)
    return Orders.of_tokens(
        rank_BL=(index_L - cut_B1 + 1).clamp(min=0), target_BP=cut_B1 + index_L[:num_targets]
    )
