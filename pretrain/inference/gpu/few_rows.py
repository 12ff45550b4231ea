"""Attention of a few rows to cached keys and values on a GPU: two kernels, each key and value read once per row.

The columns of a row are divided among programs, which together read the cache as fast as the memory allows; the second
kernel merges their parts. The keys of distances are read at an offset that follows from the row's column: nothing is
shifted or gathered in memory.

Shapes: B lanes, T content rows, Q rows, J columns of a block, K columns in use, S splits, N heads, H head dim,
R distances, E = NH.
"""

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from pretrain.inference.pass_layout import PassLayout

if TYPE_CHECKING:
    from pretrain.inference.layer import LayerCache

_BLOCK_COLUMNS = 32
_MIN_SPLIT_COLUMNS = 64
_MAX_SPLITS = 64
_PROGRAMS = 256
"""Programs that keep a GPU's memory busy."""
_NUMBERS_PER_WARP = 4096
"""Numbers of parts that a warp holds at once; of twice as many some are spilled."""
_HIDDEN_BELOW = tl.constexpr(-1e30)
"""Hidden columns have the lowest number of a type in `PassLayout.hidden_BQK`, which is below this."""


@triton.jit
def _attend_split(
    query, query_stride_b, query_stride_q, query_stride_n,
    distance_query, distance_query_stride_b, distance_query_stride_q, distance_query_stride_n,
    key, key_stride_n, key_stride_b, key_stride_k,
    value, value_stride_n, value_stride_b, value_stride_k,
    distance, distance_stride_n, distance_stride_r,
    document, document_stride_n, document_stride_b, document_stride_q,
    hidden, hidden_stride_b, hidden_stride_q, hidden_stride_k,
    other, other_stride_b, other_stride_q, other_stride_k,
    column, column_stride_b, column_stride_q,
    part, log_sum,
    num_lanes, num_rows, num_heads, num_columns, highest_distance, split_columns,
    HEAD_DIM: tl.constexpr, H: tl.constexpr, COLUMNS: tl.constexpr,
    HAS_DISTANCES: tl.constexpr, HAS_HIDDEN: tl.constexpr, HAS_OTHER: tl.constexpr,
):  # fmt: skip
    """Attend to the columns of one split, for one row and head: `part` [S, B, Q, N, H], `log_sum` [S, B, Q, N]."""
    row, n, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    b, q = row // num_rows, row % num_rows
    h = tl.arange(0, H)
    has_h = h < HEAD_DIM
    query_H = tl.load(
        query + b * query_stride_b + q * query_stride_q + n * query_stride_n + h, mask=has_h, other=0.0
    )
    query_H = query_H.to(tl.float32)
    key += n * key_stride_n + b.to(tl.int64) * key_stride_b
    value += n * value_stride_n + b.to(tl.int64) * value_stride_b
    if HAS_DISTANCES:
        place = distance_query + b * distance_query_stride_b + q * distance_query_stride_q
        by_distance_H = tl.load(place + n * distance_query_stride_n + h, mask=has_h, other=0.0).to(tl.float32)
        # Distance tables run from high to low: column c is at distance column - c, in place high - column + c.
        first = highest_distance - tl.load(column + b * column_stride_b + q * column_stride_q)
        distance += n * distance_stride_n + first * distance_stride_r
    if HAS_OTHER:
        of_document = tl.load(
            document + n * document_stride_n + b * document_stride_b + q * document_stride_q
        )
    highest = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    mixed_H = tl.zeros((H,), tl.float32)
    begin = split * split_columns
    for start in range(begin, tl.minimum(begin + split_columns, num_columns), COLUMNS):
        c_J = start + tl.arange(0, COLUMNS)
        sees_J = c_J < num_columns
        has_JH = sees_J[:, None] & has_h[None, :]
        key_JH = tl.load(key + c_J[:, None] * key_stride_k + h[None, :], mask=has_JH, other=0.0)
        score_J = tl.sum(key_JH.to(tl.float32) * query_H[None, :], 1)
        if HAS_DISTANCES:
            distance_JH = tl.load(
                distance + c_J[:, None] * distance_stride_r + h[None, :], mask=has_JH, other=0.0
            )
            score_J += tl.sum(distance_JH.to(tl.float32) * by_distance_H[None, :], 1)
        if HAS_OTHER:
            is_other = other + b * other_stride_b + q * other_stride_q + c_J * other_stride_k
            score_J += tl.where(tl.load(is_other, mask=sees_J, other=0) != 0, of_document.to(tl.float32), 0.0)
        if HAS_HIDDEN:
            places_J = hidden + b * hidden_stride_b + q * hidden_stride_q + c_J * hidden_stride_k
            sees_J &= tl.load(places_J, mask=sees_J, other=float("-inf")).to(tl.float32) > _HIDDEN_BELOW
        score_J = tl.where(sees_J, score_J, float("-inf"))
        higher = tl.maximum(highest, tl.max(score_J, 0))
        # With nothing seen yet all is minus infinity, whose difference is no number.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weight_J = tl.exp(score_J - base)
        kept = tl.exp(highest - base)
        value_JH = tl.load(value + c_J[:, None] * value_stride_k + h[None, :], mask=has_JH, other=0.0)
        mixed_H = mixed_H * kept + tl.sum(weight_J[:, None] * value_JH.to(tl.float32), 0)
        total = total * kept + tl.sum(weight_J, 0)
        highest = higher
    place = ((split * num_lanes * num_rows + row) * num_heads + n).to(tl.int64)
    tl.store(part + place * HEAD_DIM + h, mixed_H / tl.where(total > 0.0, total, 1.0), mask=has_h)
    tl.store(
        log_sum + place, tl.where(total > 0.0, highest + tl.log(tl.where(total > 0.0, total, 1.0)), highest)
    )


@triton.jit
def _merge_splits(
    part,
    log_sum,
    mixed,
    num_places,
    num_splits,
    HEAD_DIM: tl.constexpr,
    H: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """Merge the splits of one row and head into `mixed` [B, Q, N, H]."""
    place = tl.program_id(0).to(tl.int64)
    s, h = tl.arange(0, SPLITS), tl.arange(0, H)
    is_split, has_h = s < num_splits, h < HEAD_DIM
    log_sum_S = tl.load(log_sum + s * num_places + place, mask=is_split, other=float("-inf"))
    highest = tl.max(log_sum_S, 0)
    weight_S = tl.exp(log_sum_S - tl.where(highest == float("-inf"), 0.0, highest))
    places_SH = part + (s[:, None] * num_places + place) * HEAD_DIM + h[None, :]
    part_SH = tl.load(places_SH, mask=is_split[:, None] & has_h[None, :], other=0.0)
    total = tl.sum(weight_S, 0)
    mixed_H = tl.sum(weight_S[:, None] * part_SH, 0) / tl.where(total > 0.0, total, 1.0)
    tl.store(mixed + place * HEAD_DIM + h, mixed_H.to(mixed.dtype.element_ty), mask=has_h)


def attend_few_rows(
    query_BQNH: Tensor,
    distance_query_BQNH: Tensor | None,
    document_NBQ: Tensor | None,
    layer_cache: "LayerCache",
    layout: PassLayout,
) -> Tensor:
    """Return the mixed values [B, Q, E]; a row that sees nothing gets zeros.

    Queries include the scale and the biases; `distance_query_BQNH` is multiplied with the keys of distances, and
    `document_NBQ` is added to the scores of keys of another document.
    """
    lanes, rows, heads, head_dim = query_BQNH.shape
    num_keys, places = layout.num_keys, lanes * rows * heads
    split_columns, num_splits = _splits(num_keys, places)
    part_SBQNH = query_BQNH.new_empty((num_splits, lanes, rows, heads, head_dim), dtype=torch.float32)
    log_sum_SBQN = query_BQNH.new_empty((num_splits, lanes, rows, heads), dtype=torch.float32)
    distance_NRH = layer_cache.distances.keys_NRH
    hidden_BQK, other_BQK = _of_rows(layout.hidden_BQK, rows), _of_rows(layout.other_document_BQK, rows)
    dims = {"HEAD_DIM": head_dim, "H": triton.next_power_of_2(head_dim)}
    none = query_BQNH  # never read
    _attend_split[(lanes * rows, heads, num_splits)](
        **_strided("query", "bqn", query_BQNH),
        **_strided("distance_query", "bqn", distance_query_BQNH, none),
        **_strided("key", "nbk", layer_cache.key_NBCH),
        **_strided("value", "nbk", layer_cache.value_NBCH),
        **_strided("distance", "nr", distance_NRH, none),
        **_strided("document", "nbq", document_NBQ, none),
        **_strided("hidden", "bqk", hidden_BQK, none),
        **_strided("other", "bqk", other_BQK, none),
        **_strided("column", "bq", layout.columns_BQ),
        part=part_SBQNH,
        log_sum=log_sum_SBQN,
        num_lanes=lanes,
        num_rows=rows,
        num_heads=heads,
        num_columns=num_keys,
        highest_distance=layout.span.high,
        split_columns=split_columns,
        COLUMNS=_BLOCK_COLUMNS,
        HAS_DISTANCES=distance_NRH is not None,
        HAS_HIDDEN=hidden_BQK is not None,
        HAS_OTHER=other_BQK is not None,
        **dims,
    )
    mixed_BQE = query_BQNH.new_empty((lanes, rows, heads * head_dim))
    padded_splits = triton.next_power_of_2(num_splits)
    _merge_splits[(places,)](
        part=part_SBQNH,
        log_sum=log_sum_SBQN,
        mixed=mixed_BQE,
        num_places=places,
        num_splits=num_splits,
        SPLITS=padded_splits,
        num_warps=merge_warps(padded_splits, dims["H"]),
        **dims,
    )
    return mixed_BQE


def merge_warps(padded_splits: int, padded_dim: int) -> int:
    """Return the warps of a program that merges splits: as many as keep all parts in registers."""
    return max(1, padded_splits * padded_dim // _NUMBERS_PER_WARP)


def _splits(num_keys: int, programs_per_split: int) -> tuple[int, int]:
    """Return the columns of a split, a multiple of a block, and the number of splits."""
    wanted = min(_MAX_SPLITS, -(-num_keys // _MIN_SPLIT_COLUMNS), -(-_PROGRAMS // programs_per_split))
    blocks = -(-num_keys // (max(1, wanted) * _BLOCK_COLUMNS))
    columns = max(1, blocks) * _BLOCK_COLUMNS
    return columns, max(1, -(-num_keys // columns))


def _of_rows(mask_BQK: Tensor | None, rows: int) -> Tensor | None:
    return None if mask_BQK is None else mask_BQK.expand(-1, rows, -1)


def _strided(name: str, dims: str, tensor: Tensor | None, instead: Tensor | None = None) -> dict[str, Any]:
    """Return the arguments for a tensor and its strides; steps within the last dimension of vectors are 1."""
    if tensor is None:
        return {name: instead} | {f"{name}_stride_{dim}": 0 for dim in dims}
    return {name: tensor} | {f"{name}_stride_{dim}": tensor.stride(place) for place, dim in enumerate(dims)}
