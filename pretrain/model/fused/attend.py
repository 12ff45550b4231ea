"""`pretrain.model.attention_scores.attend` for CPUs, in C++: the scores of a block of rows never leave the cache.

Shapes: N heads, B lanes, Q rows, K keys, H head dim, R distances, W words of 16 keys, S keys padded.
"""

from dataclasses import dataclass
from functools import cache
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from pretrain.model.attention_scores import Distances, Queries
from pretrain.model.fused.operators import try_load_operators
from pretrain.model.layout import UNFILLED_GROUP, AttentionMask


@dataclass(frozen=True)
class PackedMask:
    """An `AttentionMask` for the operators: a bit per pair of row and key, rows sorted by position."""

    visible_BQW: Tensor
    other_document_BQW: Tensor | None
    row_position_BQ: Tensor
    row_order_BQ: Tensor
    """The index of each row in the mask."""
    key_position_BK: Tensor
    highest_distance: int


_packed: WeakKeyDictionary[AttentionMask, PackedMask] = WeakKeyDictionary()
"""Packed masks by mask, because every layer uses the same one."""


def fusable(queries: Queries, distances: Distances, dropout: float) -> bool:
    """Return whether `attend_fused` can be used for these: float32 or bfloat16 on a CPU with a compiler.

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
    return try_load_operators() and bool(torch.ops.permcode_attention.multiplies(dtype))


def attend_fused(
    queries: Queries, key_NBKH: Tensor, value_NBKH: Tensor, distances: Distances, mask: AttentionMask
) -> Tensor:
    """Compute `attend` without dropout, [N, B, Q, H]; scores are float32 and weights in the type of the queries.

    A row's result depends only on its inputs: not on the other rows and lanes, not on the number of threads.

    If the processor has no products of bfloat16, such inputs are converted to float32 and the result is rounded.
    """
    dtype, wide = queries.query_NBQH.dtype, torch.float32
    if not _multiplies(dtype):
        in_float32 = attend_fused(
            queries.to(wide), key_NBKH.to(wide), value_NBKH.to(wide), distances.to(wide), mask
        )
        return in_float32.to(dtype)
    document_NBQ2 = None if packed_mask(mask).other_document_BQW is None else queries.document_NBQ2
    mixed_NBQH: Tensor = _FusedAttention.apply(  # type: ignore[no-untyped-call]
        queries.query_NBQH,
        queries.scale,
        queries.content_bias_NH,
        queries.distance_bias_NH if distances.keys_NRH is not None else None,
        document_NBQ2,
        key_NBKH,
        value_NBKH,
        distances.keys_NRH,
        packed_mask(mask),
    )
    return mixed_NBQH


def packed_mask(mask: AttentionMask) -> PackedMask:
    """Return the mask's bits, computed at its first use."""
    if mask not in _packed:
        _packed[mask] = _pack(mask)
    return _packed[mask]


def _pack(mask: AttentionMask) -> PackedMask:
    keys, operators = mask.keys, torch.ops.permcode_attention
    row_order_BQ = mask.position_BQ.argsort(dim=1, stable=True)
    other_document_BQW = None
    if mask.document_BQ is not None and keys.document_BX is not None:
        other_document_BQW = operators.different(mask.document_BQ.gather(1, row_order_BQ), keys.document_BX)
    bound_BQ, group_BQ = mask.bound_BQ.gather(1, row_order_BQ), mask.group_BQ.gather(1, row_order_BQ)
    return PackedMask(
        operators.visible(bound_BQ, group_BQ, keys.rank_BX, keys.group_BX, UNFILLED_GROUP),
        other_document_BQW,
        mask.position_BQ.gather(1, row_order_BQ),
        row_order_BQ,
        keys.position_BX,
        mask.span.high,
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
        mask: PackedMask,
    ) -> Tensor:
        other_document_BQW = mask.other_document_BQW if document_NBQ2 is not None else None
        mixed_NBQH, weights_NBQS = torch.ops.permcode_attention.forward(
            query_NBQH,
            scale,
            content_bias_NH,
            distance_bias_NH,
            document_NBQ2,
            key_NBKH,
            value_NBKH,
            distance_NRH,
            mask.visible_BQW,
            other_document_BQW,
            mask.row_position_BQ,
            mask.row_order_BQ,
            mask.key_position_BK,
            mask.highest_distance,
            any(ctx.needs_input_grad),  # type: ignore[attr-defined]
        )
        queries = (query_NBQH, content_bias_NH, distance_bias_NH)
        ctx.save_for_backward(weights_NBQS, *queries, key_NBKH, value_NBKH, distance_NRH)  # type: ignore[arg-type]
        ctx.scale, ctx.mask = scale, mask  # type: ignore[attr-defined]
        ctx.other_document_BQW = other_document_BQW  # type: ignore[attr-defined]
        return mixed_NBQH  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        mask: PackedMask = ctx.mask  # type: ignore[attr-defined]
        weights_NBQS, query_NBQH, *others = ctx.saved_tensors  # type: ignore[attr-defined]
        of_query_NBQH, *of_others = torch.ops.permcode_attention.backward(
            gradients[0],
            weights_NBQS,
            query_NBQH,
            ctx.scale,  # type: ignore[attr-defined]
            *others,
            ctx.other_document_BQW,  # type: ignore[attr-defined]
            mask.row_position_BQ,
            mask.row_order_BQ,
            mask.key_position_BK,
            mask.highest_distance,
        )
        return (of_query_NBQH, None, *of_others, None)
