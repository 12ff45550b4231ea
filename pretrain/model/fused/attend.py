"""`pretrain.model.attend.attend` for CPUs, in C++: the scores of a block of rows never leave the cache.

Shapes: N heads, B lanes, Q rows, K keys, H head dim, R distances, W words of 16 keys, S keys padded.
"""

from dataclasses import dataclass
from functools import cache
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from pretrain.model.attend import Distances, Queries
from pretrain.model.fused.operators import operators_are_there
from pretrain.model.places import UNFILLED_GROUP, Sight


@dataclass(frozen=True)
class PackedSight:
    """A `Sight` as the operators want it: a bit per pair of row and key, rows in the order of their positions."""

    visible_BQW: Tensor
    other_document_BQW: Tensor | None
    row_position_BQ: Tensor
    row_order_BQ: Tensor
    """Which row of the sight each row is."""
    key_position_BK: Tensor
    highest_distance: int


_packed: WeakKeyDictionary[Sight, PackedSight] = WeakKeyDictionary()
"""Every layer uses the same `Sight`."""


def fusable(queries: Queries, distances: Distances, dropout: float) -> bool:
    """Whether `attend_fused` can be used for these: float32 or bfloat16 on a CPU with a compiler.

    False with dropout, with values of distances and while torch compiles.
    """
    if torch.compiler.is_compiling():
        return False
    query_NBQH = queries.query_NBQH
    if query_NBQH.dtype not in (torch.float32, torch.bfloat16):
        return False
    if query_NBQH.device.type != "cpu" or dropout > 0.0 or distances.values_RH is not None:
        return False
    if query_NBQH.dtype == torch.bfloat16 and query_NBQH.shape[-1] % 2:
        return False  # the processor multiplies pairs
    others = (queries.content_bias_NH, queries.distance_bias_NH, queries.document_NBQ2, distances.keys_NRH)
    if any(other is not None and other.dtype != query_NBQH.dtype for other in others):
        return False
    return bool(torch.backends.mkldnn.enabled) and _multiplies(torch.float32)


@cache
def _multiplies(dtype: torch.dtype) -> bool:
    return operators_are_there() and bool(torch.ops.permcode_attention.multiplies(dtype))


def attend_fused(
    queries: Queries, key_NBKH: Tensor, value_NBKH: Tensor, distances: Distances, sight: Sight
) -> Tensor:
    """`attend` without dropout, [N, B, Q, H]; scores are float32 and weights in the type of the queries.

    A row's result depends on nothing but its inputs: not on the other rows and lanes, not on the number of threads.

    Where the processor has no products of bfloat16, such inputs are made float32 and the result is rounded.
    """
    dtype, wide = queries.query_NBQH.dtype, torch.float32
    if not _multiplies(dtype):
        in_float32 = attend_fused(
            queries.to(wide), key_NBKH.to(wide), value_NBKH.to(wide), distances.to(wide), sight
        )
        return in_float32.to(dtype)
    document_NBQ2 = None if packed_sight(sight).other_document_BQW is None else queries.document_NBQ2
    mixed_NBQH: Tensor = _FusedAttention.apply(  # type: ignore[no-untyped-call]
        queries.query_NBQH,
        queries.scale,
        queries.content_bias_NH,
        queries.distance_bias_NH if distances.keys_NRH is not None else None,
        document_NBQ2,
        key_NBKH,
        value_NBKH,
        distances.keys_NRH,
        packed_sight(sight),
    )
    return mixed_NBQH


def packed_sight(sight: Sight) -> PackedSight:
    """The sight's bits, computed at its first use."""
    if sight not in _packed:
        _packed[sight] = _pack(sight)
    return _packed[sight]


def _pack(sight: Sight) -> PackedSight:
    keys, operators = sight.keys, torch.ops.permcode_attention
    row_order_BQ = sight.position_BQ.argsort(dim=1, stable=True)
    other_document_BQW = None
    if sight.document_BQ is not None and keys.document_BX is not None:
        other_document_BQW = operators.different(sight.document_BQ.gather(1, row_order_BQ), keys.document_BX)
    bound_BQ, group_BQ = sight.bound_BQ.gather(1, row_order_BQ), sight.group_BQ.gather(1, row_order_BQ)
    return PackedSight(
        operators.visible(bound_BQ, group_BQ, keys.rank_BX, keys.group_BX, UNFILLED_GROUP),
        other_document_BQW,
        sight.position_BQ.gather(1, row_order_BQ),
        row_order_BQ,
        keys.position_BX,
        sight.span.high,
    )


class _FusedAttention(torch.autograd.Function):
    """Keeps its inputs and the weights for the backward pass."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        query_NBQH: Tensor,
        scale: float,
        content_bias_NH: Tensor | None,
        distance_bias_NH: Tensor | None,
        document_NBQ2: Tensor | None,
        key_NBKH: Tensor,
        value_NBKH: Tensor,
        distance_NRH: Tensor | None,
        sight: PackedSight,
    ) -> Tensor:
        other_document_BQW = sight.other_document_BQW if document_NBQ2 is not None else None
        mixed_NBQH, weights_NBQS = torch.ops.permcode_attention.forward(
            query_NBQH,
            scale,
            content_bias_NH,
            distance_bias_NH,
            document_NBQ2,
            key_NBKH,
            value_NBKH,
            distance_NRH,
            sight.visible_BQW,
            other_document_BQW,
            sight.row_position_BQ,
            sight.row_order_BQ,
            sight.key_position_BK,
            sight.highest_distance,
            any(ctx.needs_input_grad),  # type: ignore[attr-defined]
        )
        queries = (query_NBQH, content_bias_NH, distance_bias_NH)
        ctx.save_for_backward(weights_NBQS, *queries, key_NBKH, value_NBKH, distance_NRH)  # type: ignore[arg-type]
        ctx.scale, ctx.sight = scale, sight  # type: ignore[attr-defined]
        ctx.other_document_BQW = other_document_BQW  # type: ignore[attr-defined]
        return mixed_NBQH  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        sight: PackedSight = ctx.sight  # type: ignore[attr-defined]
        weights_NBQS, query_NBQH, *others = ctx.saved_tensors  # type: ignore[attr-defined]
        of_query_NBQH, *of_others = torch.ops.permcode_attention.backward(
            gradients[0],
            weights_NBQS,
            query_NBQH,
            ctx.scale,  # type: ignore[attr-defined]
            *others,
            ctx.other_document_BQW,  # type: ignore[attr-defined]
            sight.row_position_BQ,
            sight.row_order_BQ,
            sight.key_position_BK,
            sight.highest_distance,
        )
        return (of_query_NBQH, None, *of_others, None)
