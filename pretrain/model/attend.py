"""Attention of rows to keys, written out in plain tensor operations.

Shapes: N heads, B lanes, Q rows, K keys, H head dim, R distances.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pretrain.model.places import Sight


@dataclass(frozen=True)
class Distances:
    """What a layer keeps for every distance of a span: keys [N, R, H] and values [R, H], each or neither."""

    keys_NRH: Tensor | None
    values_RH: Tensor | None

    def to(self, dtype: torch.dtype) -> "Distances":
        """The same in another type."""
        keys_NRH, values_RH = self.keys_NRH, self.values_RH
        return Distances(
            None if keys_NRH is None else keys_NRH.to(dtype),
            None if values_RH is None else values_RH.to(dtype),
        )


@dataclass(frozen=True)
class Queries:
    """What rows ask: keys query * scale + content bias, distances query * scale + distance bias.

    `document` are a row's scores for a key of the same and of another document. Biases are in the queries' type and
    scaled already; None is a bias of zeros. The scale is H^-1/2.
    """

    query_NBQH: Tensor
    scale: float
    content_bias_NH: Tensor | None
    distance_bias_NH: Tensor | None
    document_NBQ2: Tensor | None

    def to(self, dtype: torch.dtype) -> "Queries":
        """The same in another type."""
        others = (self.content_bias_NH, self.distance_bias_NH, self.document_NBQ2)
        content_bias_NH, distance_bias_NH, document_NBQ2 = (
            None if other is None else other.to(dtype) for other in others
        )
        return Queries(
            self.query_NBQH.to(dtype), self.scale, content_bias_NH, distance_bias_NH, document_NBQ2
        )

    def of_keys(self) -> Tensor:
        """What keys are asked, [N, B, Q, H]."""
        return self._biased(self.content_bias_NH)

    def of_distances(self) -> Tensor:
        """What distances are asked, [N, B, Q, H]."""
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
    sight: Sight,
    dropout: float = 0.0,
) -> Tensor:
    """What the rows gather from the keys they see, [N, B, Q, H]; zeros for a row that sees none.

    `dropout` is the probability that a weight is dropped.
    """
    score_NBQK = queries.of_keys() @ key_NBKH.transpose(-1, -2)
    if distances.keys_NRH is not None:
        score_NBQK = score_NBQK + _by_distance(queries.of_distances(), distances.keys_NRH, sight)
    pairs = sight.dense()
    if queries.document_NBQ2 is not None and pairs.other_document_BQK is not None:
        same_NBQ1, other_NBQ1 = queries.document_NBQ2.chunk(2, dim=-1)
        score_NBQK = score_NBQK + torch.where(pairs.other_document_BQK, other_NBQ1, same_NBQ1)
    hidden = torch.finfo(score_NBQK.dtype).min
    weight_NBQK = functional.softmax(score_NBQK.masked_fill(~pairs.visible_BQK, hidden), dim=-1)
    weight_NBQK = (weight_NBQK * pairs.sees_any_BQ1).to(value_NBKH.dtype)
    weight_NBQK = functional.dropout(weight_NBQK, dropout)
    mixed_NBQH = weight_NBQK @ value_NBKH
    if distances.values_RH is not None:
        mixed_NBQH = mixed_NBQH + _distance_values(weight_NBQK, distances.values_RH, sight)
    return mixed_NBQH


def _by_distance(query_NBQH: Tensor, keys_NRH: Tensor, sight: Sight) -> Tensor:
    num_heads, lanes, rows, _ = query_NBQH.shape
    # One product for all lanes: distances have the same keys in every lane.
    score_NXR = query_NBQH.flatten(1, 2) @ keys_NRH.transpose(-1, -2)
    score_NBQR = score_NXR.view(num_heads, lanes, rows, keys_NRH.shape[1])
    table_row_NBQK = sight.dense().table_row_BQK.expand(num_heads, -1, -1, -1)
    return _GatherRows.apply(score_NBQR, table_row_NBQK)  # type: ignore[no-any-return, no-untyped-call]


def _distance_values(weight_NBQK: Tensor, values_RH: Tensor, sight: Sight) -> Tensor:
    num_heads = weight_NBQK.shape[0]
    table_row_NBQK = sight.dense().table_row_BQK.expand(num_heads, -1, -1, -1)
    weight_NBQR = weight_NBQK.new_zeros(*weight_NBQK.shape[:3], len(sight.span))
    return weight_NBQR.scatter_add(-1, table_row_NBQK, weight_NBQK) @ values_RH


class _GatherRows(torch.autograd.Function):
    """`gather` on the last dimension whose indices never repeat within a row: its backward is a plain scatter.

    They cannot repeat where the span holds every distance, as it must: the keys of a lane stand at different
    positions. Distances outside the span all take its end, and all but one of their gradients would be lost.
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
