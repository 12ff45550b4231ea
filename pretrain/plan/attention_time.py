"""The work of the attention kernels and a prediction of its time: counted from tiles, not measured on a GPU.

A multiprocessor's cycles for a tile are divided among matrix products, shared memory and arithmetic. Every tile is
counted as visited; tiles that nobody sees are skipped, so that is the most.

Letters: N heads, B lanes, Q rows, X rows padded, C columns padded, R distances, H head dim.
"""

from dataclasses import dataclass
from typing import Literal

from pretrain.model.fused.gpu.tile_sizes import (
    KERNELS,
    Architecture,
    Kernel,
    KernelTile,
    Spread,
    Tile,
    padded,
    padded_head_dim,
)
from pretrain.model.fused.gpu.work import TileWork, work_of

_WIDE_HALVES = 3
"""Half bands of distances that scattered rows are taken to need."""
_FLOPS_PER_CYCLE: dict[tuple[Architecture, bool], int] = {
    ("sm_80", False): 2048,
    ("sm_90", False): 2500,
    ("sm_90", True): 4096,
    ("sm_100", False): 2048,
    ("sm_100", True): 8192,
}
"""bf16, of one multiprocessor, by whether tiles are large enough for wgmma or tcgen05: data sheets; mma.sync on Hopper
reaches about 60 % of wgmma's."""
_SHARED_BYTES_PER_CYCLE = 128
_LANES_PER_CYCLE: dict[Architecture, int] = {"sm_80": 64, "sm_90": 128, "sm_100": 128}
_OPERATIONS_PER_PAIR: dict[Kernel, int] = {"forward": 22, "rows": 26, "keys": 26, "distances": 32}
"""Arithmetic for a row and a column, read from the kernels."""
_FP32_PRODUCTS = 8
"""Three products of TF32, at a quarter of bfloat16's rate with their splitting, take so many times as long."""


@dataclass(frozen=True)
class AttentionShape:
    """One call of the attention: [N, B, Q, H] rows, C columns, R distances (0 without)."""

    heads: int
    lanes: int
    rows: int
    columns: int
    distances: int
    head_dim: int
    type_name: Literal["bf16", "fp32"]


@dataclass(frozen=True)
class KernelWork:
    """What one kernel does in one call."""

    kernel: Kernel
    tiles: int
    flops: int
    """Of matrix products, padding included."""
    loaded_bytes: int
    """Vectors of queries, keys, values and distances that programs load, most of them from the L2 cache."""
    cycles: float
    """Of all multiprocessors together, predicted."""


def kernel_work(
    kernel: Kernel, shape: AttentionShape, chosen: KernelTile, architecture: Architecture
) -> KernelWork:
    """Return a kernel's work in one call."""
    tile, spread = chosen.tile, chosen.spread
    row_tiles, column_tiles = padded(shape.rows) // tile.rows, padded(shape.columns) // tile.columns
    if kernel == "distances":
        column_tiles += 1  # the columns of a tile of rows begin anywhere among the half bands
    tiles = shape.heads * shape.lanes * row_tiles * column_tiles
    dim = padded_head_dim(shape.head_dim)
    work = work_of(kernel, spread, tile, _WIDE_HALVES)
    element_bytes = 4 if shape.type_name == "fp32" else 2
    pairs = tiles * tile.rows * tile.columns
    return KernelWork(
        kernel,
        tiles,
        tiles * work.flops(tile, dim),
        tiles * work.loaded_bytes(dim, element_bytes),
        pairs * cycles_per_pair(kernel, architecture, shape.type_name, spread, tile, dim),
    )


def all_kernels(shape: AttentionShape) -> tuple[Kernel, ...]:
    """Return the kernels of a forward and backward pass."""
    return KERNELS if shape.distances else KERNELS[:-1]


def cycles_per_pair(
    kernel: Kernel, architecture: Architecture, type_name: str, spread: Spread, tile: Tile, padded_dim: int
) -> float:
    """Return the predicted cycles of a multiprocessor per pair of row and column."""
    is_float32 = type_name == "fp32"
    element_bytes = 4 if is_float32 else 2
    work: TileWork = work_of(kernel, spread, tile, _WIDE_HALVES)
    left_rows = tile.rows if kernel in ("forward", "rows") else tile.columns
    # wgmma and tcgen05 take 64 rows of bf16; a tile for 8 warps of fewer than 128 rows is computed twice.
    is_large = left_rows >= 64 and not is_float32 and architecture != "sm_80"
    repeats = 2 if is_large and tile.warps == 8 and left_rows < 128 else 1
    rate = _FLOPS_PER_CYCLE[architecture, is_large] / (_FP32_PRODUCTS if is_float32 else 1)
    products = repeats * work.flops(tile, padded_dim) / rate
    # Loads are written once; a product reads both factors, without wgmma for each pair of warps anew.
    pairs = tile.rows * tile.columns
    reads = work.products * (tile.rows + tile.columns) * padded_dim * element_bytes * (1 if is_large else 2)
    rotated = 5 * element_bytes * pairs * work.gathers
    moved = work.loaded_bytes(padded_dim, element_bytes) + reads + rotated
    arithmetic = _OPERATIONS_PER_PAIR[kernel] * pairs / _LANES_PER_CYCLE[architecture]
    least, middle, most = sorted((products, moved / _SHARED_BYTES_PER_CYCLE, arithmetic))
    # A program alone on its multiprocessor overlaps little of its work.
    return (most + (0.7 if tile.warps == 8 else 0.3) * (least + middle)) / pairs
