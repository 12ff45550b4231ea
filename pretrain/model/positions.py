"""Transformer-XL relative positions (Dai et al. 2019, section 3.3; XLNet's bidirectional table).

Shapes: B lanes, N heads, L segment, M memory, K = M + L keys, P predicted, R = M + 2L - 1 distances, D model.
Row `row` of the table stands for distance(query - key) = M + L - 1 - row, so query position i (0..L-1) meets
key j (0..K-1) in row L - 1 - i + j.
"""

import torch
from torch import Tensor

_BASE = 10_000.0


def sinusoid_table(segment_tokens: int, memory_tokens: int, model_dim: int, device: torch.device) -> Tensor:
    """float64 [R, D]: sines then cosines of every distance a query of the segment can have to a key."""
    farthest = memory_tokens + segment_tokens - 1
    distance_R = torch.arange(farthest, -segment_tokens, -1.0, device=device, dtype=torch.float64)
    frequency = _BASE ** (-torch.arange(0.0, model_dim, 2.0, device=device, dtype=torch.float64) / model_dim)
    angle = distance_R[:, None] * frequency[None, :]
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


def shift_all(score_BNLR: Tensor, num_keys: int) -> Tensor:
    """Scores by distance -> scores by key [B, N, L, K], for queries at every position 0..L-1 in order.

    A view: row i starts one element earlier than row i - 1.
    """
    lanes, heads, length, distances = score_BNLR.shape
    score_BNLR = score_BNLR.contiguous()
    return score_BNLR.as_strided(
        (lanes, heads, length, num_keys),
        (heads * length * distances, length * distances, distances - 1, 1),
        score_BNLR.storage_offset() + length - 1,
    )


class _GatherRows(torch.autograd.Function):
    """`gather` on the last dimension whose indices never repeat within a row: its backward is a plain scatter."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, source: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.source_shape = source.shape  # type: ignore[attr-defined]
        return source.gather(-1, index)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors  # type: ignore[attr-defined]
        source = gradients[0].new_zeros(ctx.source_shape)  # type: ignore[attr-defined]
        return source.scatter_(-1, index, gradients[0]), None


def shift_some(score_BNPR: Tensor, position_BP: Tensor, segment_tokens: int, num_keys: int) -> Tensor:
    """Scores by distance -> scores by key [B, N, P, K], for queries at the given positions of the segment."""
    key_K = torch.arange(num_keys, device=score_BNPR.device)
    row_BPK = (segment_tokens - 1 - position_BP)[:, :, None] + key_K
    row_BNPK = row_BPK[:, None].expand(-1, score_BNPR.shape[1], -1, -1)
    return _GatherRows.apply(score_BNPR, row_BNPK)  # type: ignore[no-any-return, no-untyped-call]
