"""Attention of rows to keys in plain tensor operations, with Transformer-XL's relative shift.

Shapes: N heads, B lanes, Q rows, K keys, H head dim, R distances.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pretrain.model.layout import AttentionMask


@dataclass(frozen=True)
class Distances:
    """A layer's keys [N, R, H] and values [R, H] of every distance of a span; each may be None."""

    keys_NRH: Tensor | None
    values_RH: Tensor | None

    def to(self, dtype: torch.dtype) -> "Distances":
        """Return it in another type."""
        keys_NRH, values_RH = self.keys_NRH, self.values_RH
        return Distances(
            None if keys_NRH is None else keys_NRH.to(dtype),
            None if values_RH is None else values_RH.to(dtype),
        )


@dataclass(frozen=True)
class Queries:
    """Queries of rows: for keys query * scale + content bias, for distances query * scale + distance bias.

    `document_NBQ2` are a row's scores for keys of the same and of another document. Biases are in the queries' type and
    already scaled; None is a bias of zeros. The scale is H^-1/2.
    """

    query_NBQH: Tensor
    scale: float
    content_bias_NH: Tensor | None
    distance_bias_NH: Tensor | None
    document_NBQ2: Tensor | None

    def to(self, dtype: torch.dtype) -> "Queries":
        """Return it in another type."""
        others = (self.content_bias_NH, self.distance_bias_NH, self.document_NBQ2)
        content_bias_NH, distance_bias_NH, document_NBQ2 = (
            None if other is None else other.to(dtype) for other in others
        )
        return Queries(
            self.query_NBQH.to(dtype), self.scale, content_bias_NH, distance_bias_NH, document_NBQ2
        )

    def of_keys(self) -> Tensor:
        """Return the queries for keys, [N, B, Q, H]."""
        return self._biased(self.content_bias_NH)

    def of_distances(self) -> Tensor:
        """Return the queries for distances, [N, B, Q, H]."""
        return self._biased(self.distance_bias_NH)

    def _biased(self, bias_NH: Tensor | None) -> Tensor:
        if bias_NH is None:
            return self.query_NBQH * self.scale
        # One pass over the queries, not two.
        return torch.add(bias_NH[:, None, None], self.query_NBQH, alpha=self.scale)


def attend(
    queries: Queries,
    key_NBKH: Tensor,
    value_NBKH: Tensor,
    distances: Distances,
    mask: AttentionMask,
    dropout: float = 0.0,
) -> Tensor:
    """Return the attention output of the rows, [N, B, Q, H]; zeros for a row that sees no key.

    `dropout` is the probability that a weight is dropped.
    """
    score_NBQK = queries.of_keys() @ key_NBKH.transpose(-1, -2)
    if distances.keys_NRH is not None:
        score_NBQK = score_NBQK + _distance_scores(queries.of_distances(), distances.keys_NRH, mask)
    pairs = mask.dense()
    if queries.document_NBQ2 is not None and pairs.other_document_BQK is not None:
        same_NBQ1, other_NBQ1 = queries.document_NBQ2.chunk(2, dim=-1)
        score_NBQK = score_NBQK + torch.where(pairs.other_document_BQK, other_NBQ1, same_NBQ1)
    hidden = torch.finfo(score_NBQK.dtype).min
    weight_NBQK = functional.softmax(score_NBQK.masked_fill(~pairs.visible_BQK, hidden), dim=-1)
    weight_NBQK = (weight_NBQK * pairs.sees_any_BQ1).to(value_NBKH.dtype)
    weight_NBQK = functional.dropout(weight_NBQK, dropout)
    mixed_NBQH = weight_NBQK @ value_NBKH
    if distances.values_RH is not None:
        mixed_NBQH = mixed_NBQH + _distance_values(weight_NBQK, distances.values_RH, mask)
    return mixed_NBQH


def _distance_scores(query_NBQH: Tensor, keys_NRH: Tensor, mask: AttentionMask) -> Tensor:
    num_heads, lanes, rows, _ = query_NBQH.shape
    # One product for all lanes: distances have the same keys in every lane.
    score_NXR = query_NBQH.flatten(1, 2) @ keys_NRH.transpose(-1, -2)
    score_NBQR = score_NXR.view(num_heads, lanes, rows, keys_NRH.shape[1])
    distance_index_NBQK = mask.dense().distance_index_BQK.expand(num_heads, -1, -1, -1)
    return _RelativeShift.apply(score_NBQR, distance_index_NBQK)  # type: ignore[no-any-return, no-untyped-call]


def _distance_values(weight_NBQK: Tensor, values_RH: Tensor, mask: AttentionMask) -> Tensor:
    num_heads = weight_NBQK.shape[0]
    distance_index_NBQK = mask.dense().distance_index_BQK.expand(num_heads, -1, -1, -1)
    weight_NBQR = weight_NBQK.new_zeros(*weight_NBQK.shape[:3], len(mask.span))
    return weight_NBQR.scatter_add(-1, distance_index_NBQK, weight_NBQK) @ values_RH


class _RelativeShift(torch.autograd.Function):
    """Transformer-XL's relative shift (Dai et al. 2019, appendix B), from scores by distance to scores by key.

    It is a gather and not a shift of the whole matrix, because positions need not be consecutive. Indices never repeat
    within a row, since the keys of a lane have different positions and the span must hold every distance, so the
    backward pass is a plain scatter. (Distances outside the span all take its end; gradients would be lost.)
    """

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
