"""Transformer-XL relative positions (Dai et al. 2019, section 3.3; XLNet's bidirectional table).

Shapes: Q rows, N heads, H head dim, D model, R distances.
"""

import torch
from torch import Tensor, nn

from pretrain.model.places import DistanceSpan
from pretrain.model.positions.layer import LayerPositions, QueryBiases

_BASE = 10_000.0


def sinusoids(position_X: Tensor, model_dim: int) -> Tensor:
    """float64 [X, D]: sines, then cosines, of positions or distances."""
    frequency = _BASE ** (
        -torch.arange(0.0, model_dim, 2.0, device=position_X.device, dtype=torch.float64) / model_dim
    )
    angle = position_X.double()[..., None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


def sinusoid_table(span: DistanceSpan, model_dim: int, device: torch.device) -> Tensor:
    """float64 [R, D]: the sinusoids of the span's distances, the highest first."""
    return sinusoids(torch.arange(span.high, span.low - 1, -1, device=device), model_dim)


class TransformerXLLayer(LayerPositions):
    """score(i, j) = (q_i + u) k_j + (q_i + v) W r_(i-j): u are content biases, v position biases."""

    def __init__(self, model_dim: int, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.projection = nn.Linear(model_dim, num_heads * head_dim, bias=False)
        self.content_bias_NH = nn.Parameter(torch.empty(num_heads, head_dim))
        self.position_bias_NH = nn.Parameter(torch.empty(num_heads, head_dim))

    def biases(self) -> QueryBiases:
        """u and v."""
        return QueryBiases(self.content_bias_NH, self.position_bias_NH)

    def distance_keys(self, span: DistanceSpan, table_RD: Tensor | None) -> Tensor:
        """W r for every distance, shared by all lanes."""
        assert table_RD is not None
        projected: Tensor = self.projection(table_RD)
        return projected.view(len(span), self.num_heads, -1).transpose(0, 1)
