"""What a kernel does for one tile of rows and columns: counted from the kernels' code, not measured.

Letters: I rows and J columns of a tile, H head dim (padded).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pretrain.model.fused.gpu.tile_sizes import Kernel, Spread, Tile


@dataclass(frozen=True)
class TileWork:
    """The work for one tile that a kernel visits."""

    products: int
    """Matrix products of I x J x H."""
    gathers: int
    """Rotations of I x J numbers between threads, by way of shared memory."""
    loaded_vectors: int
    """Vectors of H numbers that are copied to shared memory."""

    def flops(self, tile: Tile, head_dim: int) -> int:
        """Return additions and multiplications, those of padding included."""
        return self.products * 2 * tile.rows * tile.columns * head_dim

    def loaded_bytes(self, head_dim: int, element_bytes: int) -> int:
        """Return the bytes of vectors that are loaded."""
        return self.loaded_vectors * head_dim * element_bytes


def work_of(kernel: Kernel, spread: Spread, tile: Tile, num_halves: int = 2) -> TileWork:
    """Return a kernel's work for one tile; `num_halves` of half bands with spread rows.

    | kernel | products | of which for distances (narrow) |
    | --- | --- | --- |
    | forward | scores, output | 1: the other half band is the last tile's |
    | rows | scores, of weights, of queries | 2: scores, and of queries |
    | keys | scores, of weights, of values, of keys | 2 half bands |
    | distances | 2 scores and 2 of weights (half bands of columns), scores by distance, of distances | |
    """
    rows, columns = tile.rows, tile.columns
    halves = 0 if spread == "none" else num_halves if spread == "wide" else 2
    carried = 1 if spread == "narrow" else 0
    match kernel:
        case "forward":
            return TileWork(2 + halves - carried, min(halves, 1), (2 + halves - carried) * columns)
        case "rows":
            of_distances = 2 * (halves - carried)
            return TileWork(3 + of_distances, 2 * min(halves, 1), (2 + of_distances) * columns)
        case "keys":
            return TileWork(4 + halves, min(halves, 1), (2 + min(halves, 1)) * rows + halves * columns)
        case "distances":
            return TileWork(2 * halves + 2, 2, 3 * rows + 2 * halves * columns)


_PROGRAMS = 1024
"""Programs of the gradient of distances that fill a GPU: lanes are divided into so many sets."""


def num_sets_of_lanes(lanes: int, programs_per_set: int) -> int:
    """Return into how many sets lanes are divided, so that programs fill a GPU: G."""
    return min(lanes, -(-_PROGRAMS // programs_per_set))


def empty_heads(heads: int, lanes: int, rows: int, head_dim: int, like: Tensor) -> Tensor:
    """Return an empty tensor [N, B, X, H] whose memory is [B, X, N, H]: the heads of a row side by side."""
    return torch.empty(lanes, rows, heads, head_dim, dtype=like.dtype, device=like.device).permute(2, 0, 1, 3)
