"""What is learnt: the likelihood of the predicted tokens, each given what its order lets it see.

Shapes: B lanes, L segment, P predicted, V vocabulary.
"""

import torch
from torch import Tensor
from torch.nn import functional


def left_to_right(lanes: int, length: int) -> tuple[Tensor, Tensor]:
    """Plain language modelling: rank and targets [B, L], every token predicted from those before it."""
    position_BL = torch.arange(length).expand(lanes, length)
    return position_BL + 1, position_BL.clone()


def prediction_loss(logits_BPV: Tensor, tokens_BL: Tensor, target_BP: Tensor) -> Tensor:
    """Mean negative log-likelihood of the predicted tokens in nats, computed in float32."""
    wanted_BP = tokens_BL.gather(1, target_BP)
    return functional.cross_entropy(logits_BPV.float().flatten(0, 1), wanted_BP.flatten())
