"""Ordinary language modelling as an order: every token is predicted from those before it.

Shapes: B lanes, L segment.
"""

import torch
from torch import Tensor

from pretrain.model.layout import TokenLayout


def left_to_right(group_BL: Tensor, document_BL: Tensor | None = None) -> TokenLayout:
    """Return the layout of ordinary language modelling, in text order; it serves as content and as targets."""
    position_L = torch.arange(group_BL.shape[1], device=group_BL.device)
    return TokenLayout.contiguous((position_L + 1).expand_as(group_BL), group_BL, document_BL)
