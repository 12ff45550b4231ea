"""Rotary positions (Su et al. 2021, section 3.2), the halves of a head's dimensions forming the pairs.

Shapes: B lanes, X rows or keys, N heads, H head dim.
"""

import torch
from torch import Tensor

from pretrain.model.positions.layer import LayerPositions


class RotaryLayer(LayerPositions):
    """Turns queries and keys, so that their product depends on the difference of their positions alone."""

    def __init__(self, head_dim: int, base: float) -> None:
        super().__init__()
        self.head_dim, self.base = head_dim, base

    def placed(self, heads_BXNH: Tensor, position_BX: Tensor) -> Tensor:
        """Heads turned by position * base^(-2i/H) in pair i."""
        pair = torch.arange(0.0, self.head_dim, 2.0, device=heads_BXNH.device, dtype=torch.float64)
        angle = position_BX.double()[..., None] * self.base ** (-pair / self.head_dim)
        cos, sin = (part[:, :, None].to(heads_BXNH.dtype) for part in (angle.cos(), angle.sin()))
        first, second = heads_BXNH.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
