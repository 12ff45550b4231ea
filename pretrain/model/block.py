"""One layer: attention and a feed-forward network, residual and normalised.

Shapes: B lanes, L segment, M memory, Q rows of either stream, D model, R distances.
"""

from torch import Tensor, nn
from torch.nn import functional

from pretrain.model.attention import TwoStreamAttention
from pretrain.model.config import ModelConfig
from pretrain.model.feed_forward import feed_forward
from pretrain.model.places import Sight


class Norm(nn.LayerNorm):
    """LayerNorm computed in float32 at least, whatever its weights are kept in."""

    def forward(self, rows: Tensor) -> Tensor:
        """Normalised rows in the type of `rows`."""
        weight, bias = self.weight.to(rows.dtype), self.bias.to(rows.dtype)
        return functional.layer_norm(rows, self.normalized_shape, weight, bias, self.eps)


class Block(nn.Module):
    """Advances rows of both streams by one layer; every weight serves both.

    The residual stream is float32 (float64 in a float64 model) while matrices are multiplied in the weights' type.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.attention = TwoStreamAttention(config)
        self.feed_forward = feed_forward(config)
        self.attention_norm = Norm(config.model_dim, eps=config.norm_epsilon)
        self.feed_forward_norm = Norm(config.model_dim, eps=config.norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        rows_BQD: Tensor,
        content_BLD: Tensor,
        memory_BMD: Tensor,
        table_RD: Tensor | None,
        sight: Sight,
    ) -> Tensor:
        """The rows one layer up; keys and values are made of the layer's input at [memory; content]."""
        rows, content, memory = (
            self._entering(self.attention_norm, part_BXD) for part_BXD in (rows_BQD, content_BLD, memory_BMD)
        )
        key_NBKH, value_NBKH = self.attention.keys_values(memory, content, sight.keys)
        distances = self.attention.distances(sight.span, table_RD)
        attended_BQD = self.attention(rows, key_NBKH, value_NBKH, distances, sight)
        rows_BQD = self._add(self.attention_norm, rows_BQD, attended_BQD)
        update_BQD = self.feed_forward(self._entering(self.feed_forward_norm, rows_BQD))
        return self._add(self.feed_forward_norm, rows_BQD, update_BQD)

    def _entering(self, norm: nn.LayerNorm, rows_BXD: Tensor) -> Tensor:
        if self.pre_norm:
            rows_BXD = norm(rows_BXD)
        return rows_BXD.to(self.attention.query.weight.dtype)

    def _add(self, norm: nn.LayerNorm, rows_BQD: Tensor, update_BQD: Tensor) -> Tensor:
        rows_BQD = rows_BQD + self.dropout(update_BQD).to(rows_BQD.dtype)
        if not self.pre_norm:
            rows_BQD = norm(rows_BQD)
        return rows_BQD
