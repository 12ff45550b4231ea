"""The objective: the likelihood of the predicted tokens, each given the tokens that its order lets it see.

Shapes: B lanes, L segment, P predicted, V vocabulary, X = B P.
"""

import torch
from torch import Tensor
from torch.nn import functional

from pretrain.model.fused.cross_entropy import cross_entropy_fusable, fused_cross_entropy
from pretrain.model.layout import TokenLayout
from pretrain.model.precision import at_least_float32


def left_to_right(group_BL: Tensor, document_BL: Tensor | None = None) -> TokenLayout:
    """Return the layout of ordinary language modelling, in text order; it serves as content and as targets."""
    position_L = torch.arange(group_BL.shape[1], device=group_BL.device)
    return TokenLayout.contiguous((position_L + 1).expand_as(group_BL), group_BL, document_BL)


def prediction_loss(logits_BPV: Tensor, wanted_BP: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of the wanted tokens in nats, computed in float32 at least."""
    logits_XV, wanted_X = logits_BPV.flatten(0, 1), wanted_BP.flatten()
    if cross_entropy_fusable(logits_XV):
        return fused_cross_entropy(logits_XV, wanted_X)
    return functional.cross_entropy(at_least_float32(logits_XV), wanted_X)
