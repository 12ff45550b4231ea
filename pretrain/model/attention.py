"""Multi-head attention whose weights serve the content and the query stream alike (XLNet sections 2.3 to 2.5).

Shapes: B lanes, Q rows, K keys, X rows or keys, N heads, H head dim, D model, R distances.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from pretrain.model.attention_scores import Distances, Queries, attend
from pretrain.model.config import ModelConfig
from pretrain.model.fused.attend import attend_fused, fusable
from pretrain.model.fused.gpu.choice import served_by_kernels
from pretrain.model.layout import AttentionMask, DistanceSpan, TokenLayout
from pretrain.model.positions import layer_positions
from pretrain.model.precision import product_dtype


class SegmentEncodings(nn.Module):
    """XLNet's relative segment encodings: a score for "same document" and one for "another", per head."""

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.query_bias_NH = nn.Parameter(torch.empty(num_heads, head_dim))
        self.key_2NH = nn.Parameter(torch.empty(2, num_heads, head_dim))

    def forward(self, query_BQNH: Tensor) -> Tensor:
        """Return (q + b) s for the two cases, [B, Q, N, 2]."""
        biased_BQNH = query_BQNH + self.query_bias_NH.to(query_BQNH.dtype)
        return torch.einsum("bqnh,snh->bqns", biased_BQNH, self.key_2NH.to(query_BQNH.dtype))


class TwoStreamAttention(nn.Module):
    """Attention of rows of either stream to keys made of [memory; content]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.num_heads, self.head_dim = config.num_heads, config.head_dim
        self.dropout = config.attention_dropout
        inner_dim = config.num_heads * config.head_dim
        self.query = nn.Linear(config.model_dim, inner_dim, bias=False)
        self.key = nn.Linear(config.model_dim, inner_dim, bias=False)
        self.value = nn.Linear(config.model_dim, inner_dim, bias=False)
        self.output = nn.Linear(inner_dim, config.model_dim, bias=False)
        self.positions = layer_positions(config)
        self.segments = (
            SegmentEncodings(config.num_heads, config.head_dim) if config.segment_encodings else None
        )

    def keys_values(
        self, memory_BMD: Tensor, content_BLD: Tensor, keys: TokenLayout
    ) -> tuple[Tensor, Tensor]:
        """Return keys and values [N, B, K, H] over [memory; content], for both streams."""
        # One product for both: in bfloat16 the gradients of two would be rounded before they are added.
        weight_ED = torch.cat([self.key.weight, self.value.weight]).to(product_dtype(content_BLD))
        both_BKE: Tensor = _ProductWithMemory.apply(memory_BMD, content_BLD, weight_ED)  # type: ignore[no-untyped-call]
        key_BKNH, value_BKNH = (self._heads(part_BKD) for part_BKD in both_BKE.chunk(2, dim=-1))
        return _heads_first(self.positions.with_positions(key_BKNH, keys.position_BX)), _heads_first(
            value_BKNH
        )

    def distances(self, span: DistanceSpan, table_RD: Tensor | None) -> Distances:
        """Return this layer's keys and values of every distance of the span."""
        return Distances(self.positions.distance_keys(span, table_RD), self.positions.distance_values(span))

    def forward(
        self,
        rows_BQD: Tensor,
        key_NBKH: Tensor,
        value_NBKH: Tensor,
        distances: Distances,
        mask: AttentionMask,
    ) -> Tensor:
        """Return the attention output of every row, [B, Q, D]."""
        queries = self._queries(rows_BQD, mask)
        dropout = self.dropout if self.training else 0.0
        if served_by_kernels(queries, distances, mask, dropout):
            from pretrain.model.fused.gpu.attend import attend_on_gpu

            mixed_NBQH = attend_on_gpu(queries, key_NBKH, value_NBKH, distances, mask, dropout)
        elif fusable(queries, distances, dropout):
            mixed_NBQH = attend_fused(queries, key_NBKH, value_NBKH, distances, mask)
        else:
            mixed_NBQH = attend(queries, key_NBKH, value_NBKH, distances, mask, dropout)
        mixed: Tensor = self.output(mixed_NBQH.permute(1, 2, 0, 3).flatten(-2))
        return mixed

    def _queries(self, rows_BQD: Tensor, mask: AttentionMask) -> Queries:
        scale = self.head_dim**-0.5
        query_BQNH = self._heads(self.query(rows_BQD))
        placed_BQNH = self.positions.with_positions(query_BQNH, mask.position_BQ)
        document_NBQ2 = None
        if self.segments is not None and mask.document_BQ is not None:
            document_NBQ2 = _heads_first(self.segments(query_BQNH) * scale)
        biases = self.positions.biases()
        content_NH, distance_NH = (
            None if bias_NH is None else (bias_NH * scale).to(placed_BQNH.dtype)
            for bias_NH in (biases.content_NH, biases.distance_NH)
        )
        return Queries(_heads_first(placed_BQNH), scale, content_NH, distance_NH, document_NBQ2)

    def _heads(self, flat_BXD: Tensor) -> Tensor:
        return flat_BXD.view(*flat_BXD.shape[:-1], self.num_heads, self.head_dim)


class _ProductWithMemory(torch.autograd.Function):
    """[memory; content] times the transposed weight, [B, K, E]; the memory's gradient only where it is wanted."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, memory_BMD: Tensor, content_BLD: Tensor, weight_ED: Tensor
    ) -> Tensor:
        ctx.save_for_backward(memory_BMD, content_BLD, weight_ED)
        return functional.linear(torch.cat([memory_BMD, content_BLD], dim=1), weight_ED)

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        memory_BMD, content_BLD, weight_ED = ctx.saved_tensors  # type: ignore[attr-defined]
        of_memory_BME, of_content_BLE = gradients[0].tensor_split([memory_BMD.shape[1]], dim=1)
        wants_memory = ctx.needs_input_grad[0]  # type: ignore[attr-defined]
        rows_XD = torch.cat([memory_BMD, content_BLD], dim=1).flatten(0, 1)
        return (
            of_memory_BME @ weight_ED if wants_memory else None,
            of_content_BLE @ weight_ED,
            gradients[0].flatten(0, 1).T @ rows_XD,
        )


def _heads_first(heads_BXNH: Tensor) -> Tensor:
    return heads_BXNH.permute(2, 0, 1, 3)
