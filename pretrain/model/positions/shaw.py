"""Learned vectors per clipped distance (Shaw et al. 2018, equations 3 and 4; in the seed documents 4 and 5).

Shapes: N heads, H head dim, R distances, C = 2c + 1 clipped distances.
"""

import torch
from torch import Tensor, nn

from pretrain.model.places import DistanceSpan
from pretrain.model.positions.layer import LayerPositions


class ShawLayer(LayerPositions):
    """score(i, j) = q_i (k_j + a^K_clip(i-j)), output = sum of weight * (v_j + a^V_clip(i-j)).

    The vectors of a layer serve all heads; row 0 is distance +c, the last row -c.
    """

    def __init__(self, max_distance_tokens: int, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.max_distance_tokens, self.num_heads = max_distance_tokens, num_heads
        self.key_CH = nn.Parameter(torch.empty(2 * max_distance_tokens + 1, head_dim))
        self.value_CH = nn.Parameter(torch.empty(2 * max_distance_tokens + 1, head_dim))

    def _rows(self, span: DistanceSpan) -> Tensor:
        clip = self.max_distance_tokens
        distance_R = torch.arange(span.high, span.low - 1, -1, device=self.key_CH.device)
        return clip - distance_R.clamp(-clip, clip)

    def distance_keys(self, span: DistanceSpan, table_RD: Tensor | None) -> Tensor:
        """a^K of every distance, the same for all heads."""
        return self.key_CH[self._rows(span)].expand(self.num_heads, -1, -1)

    def distance_values(self, span: DistanceSpan) -> Tensor:
        """a^V of every distance."""
        return self.value_CH[self._rows(span)]
