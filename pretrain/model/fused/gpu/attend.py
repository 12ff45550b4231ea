"""`pretrain.model.attention_scores.attend` for GPUs: scores and weights exist in tiles only, forward and backward.

Sums are made in one fixed order, without atomic additions, so that a repetition has the same bits. The operators
`torch.ops.permcode_gpu` are opaque to torch.compile, which so needs no graph break; on tensors without contents they
work without Triton.

Shapes: N heads, B lanes, Q rows, K keys, H head dim, R distances.
"""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pretrain.model.attention_scores import Distances, Queries
from pretrain.model.fused.gpu.tile_sizes import (
    Kernel,
    KernelTile,
    TableSizes,
    architecture_of,
    padded,
    tiles_for,
)
from pretrain.model.fused.gpu.work import empty_heads, num_sets_of_lanes
from pretrain.model.layout import AttentionMask, DistanceSpan, TokenLayout

if TYPE_CHECKING:
    from pretrain.model.fused.gpu.launch import Problem

_UNKNOWN = -1


def attend_on_gpu(
    queries: Queries,
    key_NBKH: Tensor,
    value_NBKH: Tensor,
    distances: Distances,
    mask: AttentionMask,
    dropout: float = 0.0,
) -> Tensor:
    """Compute `attend`, [N, B, Q, H]; scores are float32, weights in the type of the queries.

    Which weights are dropped is a function of PyTorch's generator for the CPU, the lane, the head, the row and the key.
    """
    distance_NRH, keys = distances.keys_NRH, mask.keys
    has_documents = queries.document_NBQ2 is not None and keys.document_BX is not None
    gap_tokens = _UNKNOWN if mask.largest_gap_tokens is None else mask.largest_gap_tokens
    head_dim = queries.query_NBQH.shape[-1]
    name = f"{queries.query_NBQH.dtype} {head_dim} {distance_NRH is not None}"
    if name not in mask.derived:
        mask.derived[name] = torch.ops.permcode_gpu.mask_tables(
            mask.position_BQ,
            mask.bound_BQ,
            mask.group_BQ,
            mask.document_BQ,
            keys.position_BX,
            keys.rank_BX,
            keys.group_BX,
            keys.document_BX,
            mask.memory_tokens,
            keys.extent,
            gap_tokens,
            queries.query_NBQH.new_empty(0),
            head_dim,
            distance_NRH is not None,
        )
    mixed_NBQH, _, _ = torch.ops.permcode_gpu.attend(
        queries.query_NBQH,
        queries.content_bias_NH,
        queries.distance_bias_NH if distance_NRH is not None else None,
        queries.document_NBQ2 if has_documents else None,
        key_NBKH,
        value_NBKH,
        distance_NRH,
        mask.derived[name],
        mask.memory_tokens + keys.extent,
        queries.scale,
        dropout,
        gap_tokens,
    )
    return mixed_NBQH  # type: ignore[no-any-return]


def _tiles(like: Tensor, head_dim: int, gap_tokens: int, has_distances: bool) -> dict[Kernel, KernelTile]:
    gap = None if gap_tokens == _UNKNOWN else gap_tokens
    tiles = tiles_for(architecture_of(like.device), like.dtype, head_dim, gap, has_distances)
    assert tiles is not None, "served_by_kernels looks for them before"
    return dict(tiles)


@torch.library.custom_op("permcode_gpu::mask_tables", mutates_args=())
def _mask_tables(
    position_BQ: Tensor,
    bound_BQ: Tensor,
    group_BQ: Tensor,
    document_BQ: Tensor | None,
    key_position_BK: Tensor,
    key_rank_BK: Tensor,
    key_group_BK: Tensor,
    key_document_BK: Tensor | None,
    memory_tokens: int,
    extent: int,
    gap_tokens: int,
    like: Tensor,
    head_dim: int,
    has_distances: bool,
) -> Tensor:
    """Make the tables that all layers use, int32 [X] packed."""
    from pretrain.model.fused.gpu.tables import tables_of

    keys = TokenLayout(key_position_BK, key_rank_BK, key_group_BK, key_document_BK, extent)
    span = DistanceSpan.of_segment(extent, memory_tokens)
    mask = AttentionMask(position_BQ, bound_BQ, group_BQ, document_BQ, keys, span)
    return tables_of(mask, _tiles(like, head_dim, gap_tokens, has_distances)).packed()


@_mask_tables.register_fake
def _(
    position_BQ: Tensor,
    bound_BQ: Tensor,
    group_BQ: Tensor,
    document_BQ: Tensor | None,
    key_position_BK: Tensor,
    key_rank_BK: Tensor,
    key_group_BK: Tensor,
    key_document_BK: Tensor | None,
    memory_tokens: int,
    extent: int,
    gap_tokens: int,
    like: Tensor,
    head_dim: int,
    has_distances: bool,
) -> Tensor:
    lanes, num_rows = position_BQ.shape
    tiles = _tiles(like, head_dim, gap_tokens, has_distances)
    sizes = TableSizes(lanes, num_rows, memory_tokens + extent, memory_tokens + 2 * extent - 1, tiles)
    return position_BQ.new_empty(sum(map(math.prod, sizes.shapes())), dtype=torch.int32)


def _problem(
    query_NBQH: Tensor,
    content_bias_NH: Tensor | None,
    distance_bias_NH: Tensor | None,
    document_NBQ2: Tensor | None,
    key_NBKH: Tensor,
    value_NBKH: Tensor,
    distance_NRH: Tensor | None,
    tables_X: Tensor,
    num_columns: int,
    scale: float,
    dropout: float,
    gap_tokens: int,
    seed: int,
) -> "Problem":
    from pretrain.model.fused.gpu.launch import Problem
    from pretrain.model.fused.gpu.tables import MaskTables

    _, lanes, num_rows, head_dim = query_NBQH.shape
    num_distances = 0 if distance_NRH is None else distance_NRH.shape[1]
    tiles = _tiles(query_NBQH, head_dim, gap_tokens, distance_NRH is not None)
    sizes = TableSizes(lanes, num_rows, num_columns, num_distances, tiles)
    return Problem(
        _steps_of_one(query_NBQH),
        None if content_bias_NH is None else content_bias_NH.contiguous(),
        None if distance_bias_NH is None else distance_bias_NH.contiguous(),
        document_NBQ2,
        _steps_of_one(key_NBKH),
        _steps_of_one(value_NBKH),
        None if distance_NRH is None else _steps_of_one(distance_NRH),
        MaskTables.unpacked(tables_X, sizes),
        tiles,
        scale,
        dropout,
        seed,
    )


def _steps_of_one(heads: Tensor) -> Tensor:
    return heads if heads.stride(-1) == 1 else heads.contiguous()


@torch.library.custom_op("permcode_gpu::attend", mutates_args=())
def _attend(
    query_NBQH: Tensor,
    content_bias_NH: Tensor | None,
    distance_bias_NH: Tensor | None,
    document_NBQ2: Tensor | None,
    key_NBKH: Tensor,
    value_NBKH: Tensor,
    distance_NRH: Tensor | None,
    tables_X: Tensor,
    num_columns: int,
    scale: float,
    dropout: float,
    gap_tokens: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the output, the logarithm of each row's sum of weights, and the seed of the dropout (on the CPU)."""
    from pretrain.model.fused.gpu.launch import launch_forward

    seed = torch.randint(2**63 - 1, ()) if dropout > 0.0 else torch.zeros((), dtype=torch.int64)
    problem = _problem(
        query_NBQH,
        content_bias_NH,
        distance_bias_NH,
        document_NBQ2,
        key_NBKH,
        value_NBKH,
        distance_NRH,
        tables_X,
        num_columns,
        scale,
        dropout,
        gap_tokens,
        int(seed),
    )
    return *launch_forward(problem), seed


@_attend.register_fake
def _(
    query_NBQH: Tensor,
    content_bias_NH: Tensor | None,
    distance_bias_NH: Tensor | None,
    document_NBQ2: Tensor | None,
    key_NBKH: Tensor,
    value_NBKH: Tensor,
    distance_NRH: Tensor | None,
    tables_X: Tensor,
    num_columns: int,
    scale: float,
    dropout: float,
    gap_tokens: int,
) -> tuple[Tensor, Tensor, Tensor]:
    heads, lanes, rows, head_dim = query_NBQH.shape
    log_sum_BNX = query_NBQH.new_empty(lanes, heads, padded(rows), dtype=torch.float32)
    seed = torch.empty((), dtype=torch.int64, device="cpu")
    return empty_heads(heads, lanes, rows, head_dim, query_NBQH), log_sum_BNX, seed


@torch.library.custom_op("permcode_gpu::attend_backward", mutates_args=())
def _attend_backward(
    gradient_NBQH: Tensor,
    mixed_NBQH: Tensor,
    log_sum_BNX: Tensor,
    seed: Tensor,
    query_NBQH: Tensor,
    content_bias_NH: Tensor | None,
    distance_bias_NH: Tensor | None,
    document_NBQ2: Tensor | None,
    key_NBKH: Tensor,
    value_NBKH: Tensor,
    distance_NRH: Tensor | None,
    tables_X: Tensor,
    num_columns: int,
    scale: float,
    dropout: float,
    gap_tokens: int,
) -> list[Tensor]:
    """Return the gradients of the first seven inputs; those that are missing are empty."""
    from pretrain.model.fused.gpu.launch import launch_backward

    problem = _problem(
        query_NBQH,
        content_bias_NH,
        distance_bias_NH,
        document_NBQ2,
        key_NBKH,
        value_NBKH,
        distance_NRH,
        tables_X,
        num_columns,
        scale,
        dropout,
        gap_tokens,
        int(seed),
    )
    gradients = launch_backward(problem, mixed_NBQH, log_sum_BNX, _steps_of_one(gradient_NBQH))
    return [query_NBQH.new_empty(0) if part is None else part for part in vars(gradients).values()]


def backward_workspace_bytes(
    gradient_NBQH: Tensor,
    mixed_NBQH: Tensor,
    log_sum_BNX: Tensor,
    seed: Tensor,
    query_NBQH: Tensor,
    content_bias_NH: Tensor | None,
    distance_bias_NH: Tensor | None,
    document_NBQ2: Tensor | None,
    key_NBKH: Tensor,
    value_NBKH: Tensor,
    distance_NRH: Tensor | None,
    tables_X: Tensor,
    num_columns: int,
    scale: float,
    dropout: float,
    gap_tokens: int,
) -> int:
    """Return the bytes that `attend_backward` allocates besides what it returns.

    They are queries for keys and for distances, a number per row, and parts of the sums for biases and distances.
    """
    lanes, heads, num_padded = log_sum_BNX.shape
    head_dim, element_bytes = query_NBQH.shape[-1], query_NBQH.element_size()
    tiles = _tiles(query_NBQH, head_dim, gap_tokens, distance_NRH is not None)
    rows = heads * lanes * num_padded
    num_queries = 1 if distance_NRH is None else 2
    total = rows * (num_queries * head_dim * element_bytes + 4)
    if content_bias_NH is not None:
        total += heads * lanes * padded(num_columns) // tiles["keys"].tile.columns * head_dim * 4
    if distance_NRH is not None:
        num_chunks = -(-distance_NRH.shape[1] // tiles["distances"].tile.columns)
        num_sets = num_sets_of_lanes(lanes, num_chunks * heads)
        total += num_sets * distance_NRH.numel() * 4
        total += num_sets * heads * num_chunks * head_dim * 4 if distance_bias_NH is not None else 0
    return total


@_attend_backward.register_fake
def _(
    gradient_NBQH: Tensor,
    mixed_NBQH: Tensor,
    log_sum_BNX: Tensor,
    seed: Tensor,
    query_NBQH: Tensor,
    content_bias_NH: Tensor | None,
    distance_bias_NH: Tensor | None,
    document_NBQ2: Tensor | None,
    key_NBKH: Tensor,
    value_NBKH: Tensor,
    distance_NRH: Tensor | None,
    tables_X: Tensor,
    num_columns: int,
    scale: float,
    dropout: float,
    gap_tokens: int,
) -> list[Tensor]:
    def heads_like(tensor: Tensor) -> Tensor:
        heads, lanes, rows, head_dim = tensor.shape
        return empty_heads(heads, lanes, rows, head_dim, tensor)

    others = (content_bias_NH, distance_bias_NH, document_NBQ2, distance_NRH)
    content, distance_bias, document, distance = (
        query_NBQH.new_empty(0 if other is None else other.shape) for other in others
    )
    heads = (heads_like(query_NBQH), heads_like(key_NBKH), heads_like(value_NBKH))
    return [heads[0], content, distance_bias, document, *heads[1:], distance]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output, *inputs[:8])
    ctx.others = inputs[8:]


def _backward(ctx: Any, gradient_NBQH: Tensor, *_: Tensor) -> tuple[Any, ...]:
    mixed_NBQH, log_sum_BNX, seed, *inputs = ctx.saved_tensors
    gradients = torch.ops.permcode_gpu.attend_backward(
        gradient_NBQH, mixed_NBQH, log_sum_BNX, seed, *inputs, *ctx.others
    )
    known = [None if tensor is None else part for tensor, part in zip(inputs[:7], gradients, strict=True)]
    return (*known, *[None] * (1 + len(ctx.others)))


_attend.register_autograd(_backward, setup_context=_save)
