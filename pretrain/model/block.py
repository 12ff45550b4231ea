"""One layer: attention and a feed-forward network, residual and normalised.

Shapes: B lanes, L segment, M memory, Q rows of either stream, D model, R distances.
"""

from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from pretrain.model.attention import TwoStreamAttention
from pretrain.model.config import ModelConfig
from pretrain.model.dropout import Dropout
from pretrain.model.feed_forward import feed_forward
from pretrain.model.fused.add_norm import add_norm, add_norm_fusable
from pretrain.model.layout import AttentionMask


class Norm(nn.LayerNorm):
    """LayerNorm computed in float32 at least, whatever its weights are kept in."""

    def forward(self, rows: Tensor) -> Tensor:
        """Return the normalised rows in the type of `rows`."""
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
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        rows_BQD: Tensor,
        narrow_BQD: Tensor,
        memory_BMD: Tensor,
        table_RD: Tensor | None,
        mask: AttentionMask,
        recompute_attention: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Return the rows of the mask after this layer.

        Rows are passed twice: as the residual stream, and in the type in which matrices are multiplied (`narrow`). The
        content rows come first; keys and values are made of the memory and of them. The mask's rows come last.
        With `recompute_attention`, queries, keys, values and what attention keeps are made again in the backward pass.
        """
        first = rows_BQD.shape[1] - mask.position_BQ.shape[1]
        if self.pre_norm:
            narrow_BQD = self.attention_norm(rows_BQD).to(narrow_BQD.dtype)
            memory_BMD = self.attention_norm(memory_BMD)
        inputs = (narrow_BQD, memory_BMD.to(narrow_BQD.dtype), table_RD, mask)
        if recompute_attention:
            attended_BQD: Tensor = checkpoint(self._attend, *inputs, use_reentrant=False)
        else:
            attended_BQD = self._attend(*inputs)
        rows_BQD, narrow_BQD = self._add(self.attention_norm, rows_BQD[:, first:], attended_BQD)
        if self.pre_norm:
            narrow_BQD = self.feed_forward_norm(rows_BQD).to(narrow_BQD.dtype)
        return self._add(self.feed_forward_norm, rows_BQD, self.feed_forward(narrow_BQD))

    def _attend(
        self, narrow_BQD: Tensor, memory_BMD: Tensor, table_RD: Tensor | None, mask: AttentionMask
    ) -> Tensor:
        num_content = mask.keys.position_BX.shape[1] - memory_BMD.shape[1]
        first = narrow_BQD.shape[1] - mask.position_BQ.shape[1]
        keys_values = self.attention.keys_values(memory_BMD, narrow_BQD[:, :num_content], mask.keys)
        distances = self.attention.distances(mask.span, table_RD)
        attended_BQD: Tensor = self.attention(narrow_BQD[:, first:], *keys_values, distances, mask)
        return attended_BQD

    def _add(self, norm: nn.LayerNorm, rows_BQD: Tensor, update_BQD: Tensor) -> tuple[Tensor, Tensor]:
        update_BQD = self.dropout(update_BQD)
        if not self.pre_norm and add_norm_fusable(rows_BQD, update_BQD):
            return add_norm(rows_BQD, update_BQD, norm.weight, norm.bias, norm.eps)
        rows_BQD = rows_BQD + update_BQD.to(rows_BQD.dtype)
        if not self.pre_norm:
            rows_BQD = norm(rows_BQD)
        return rows_BQD, rows_BQD.to(update_BQD.dtype)
