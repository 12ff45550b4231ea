"""Sizes of the kernels' tiles by GPU, type, head dimension and spread of rows, from `tile_sizes.json`.

The table is written by `python -m benchmarks.gpu_tiles`, which keeps what compiles without spilled registers. Where no
tile for narrow rows does, there is no entry and that for wide rows is used. Those of bfloat16 with head dimensions of
64 and most of 128 were searched in the order of the prediction; the others are known to fit, no more. Products and
sums of float32 with large head dimensions spill with every tile.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

import torch

Kernel = Literal["forward", "rows", "keys", "distances"]
KERNELS: tuple[Kernel, ...] = ("forward", "rows", "keys", "distances")
Spread = Literal["narrow", "wide", "none"]
"""Rows of a tile are less than a half band of distances apart (narrow), or not (wide); or there are no distances."""
SPREADS: tuple[Spread, ...] = ("narrow", "wide", "none")
Architecture = Literal["sm_80", "sm_90", "sm_100"]
ARCHITECTURES: tuple[Architecture, ...] = ("sm_80", "sm_90", "sm_100")
MAX_RUNS = 8
"""The most runs of tiles that a tile sees; the last one includes what is between it and later ones."""
_PADDING_TOKENS = 128
"""Rows and columns are padded to a multiple of this, the largest tile."""
PADDED_HEAD_DIMS = (16, 32, 64, 128)


@dataclass(frozen=True)
class Tile:
    """Rows and columns of a tile, warps of a program, stages of the pipeline of loads."""

    rows: int
    columns: int
    warps: int
    stages: int

    def holds(self, gap_tokens: int) -> bool:
        """Return whether rows, with so many positions lacking among them, are less than a half band apart."""
        return self.rows - 1 + gap_tokens <= self.columns


@dataclass(frozen=True)
class KernelTile:
    """The tile that a kernel uses for a mask, and how its rows are spread."""

    tile: Tile
    spread: Spread


@dataclass(frozen=True)
class TableSizes:
    """The sizes of a mask's tables (`tables.MaskTables`) for B lanes."""

    lanes: int
    num_rows: int
    num_columns: int
    """With memory and gaps, without padding."""
    num_distances: int
    tiles: Mapping[Kernel, KernelTile]

    def shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of all tables in order: of rows, of columns, of the tiles of each kernel."""
        rows, columns = padded(self.num_rows), padded(self.num_columns)
        found: list[tuple[int, ...]] = [*[(self.lanes, rows)] * 5, *[(self.lanes, columns)] * 3]
        for kernel, chosen in self.tiles.items():
            row_tiles = rows // chosen.tile.rows
            programs = {
                "keys": columns // chosen.tile.columns,
                "distances": -(-self.num_distances // chosen.tile.columns),
            }.get(kernel, row_tiles)
            found += [(self.lanes, row_tiles)] * 2
            found += [(self.lanes, programs, MAX_RUNS, 2), (self.lanes, programs)]
        return found


def padded(length: int) -> int:
    """Return the number of rows or columns with padding."""
    return -(-max(length, 1) // _PADDING_TOKENS) * _PADDING_TOKENS


def padded_head_dim(head_dim: int) -> int:
    """Return the power of 2, at least 16, that matrix products use for a head dimension."""
    return max(16, 1 << (head_dim - 1).bit_length())


def architecture_of(device: torch.device) -> Architecture:
    """Return the architecture whose entries serve a device; a CPU, where kernels are interpreted, uses sm_80's."""
    major = torch.cuda.get_device_capability(device)[0] if device.type == "cuda" else 8
    # Consumer GPUs (8.6, 8.9, 12.x) have less shared memory than their generation's others; sm_80's tiles fit.
    return "sm_90" if major == 9 else "sm_100" if major in (10, 11) else "sm_80"


def tiles_for(
    architecture: Architecture,
    dtype: torch.dtype,
    head_dim: int,
    gap_tokens: int | None,
    has_distances: bool,
) -> Mapping[Kernel, KernelTile] | None:
    """Return every kernel's tile; None if the table has none. `gap_tokens` is `AttentionMask.largest_gap_tokens`."""
    found: dict[Kernel, KernelTile] = {}
    for kernel in KERNELS:
        if not has_distances:
            if kernel == "distances":
                continue
            options: tuple[Spread, ...] = ("none",)
        else:
            options = ("narrow", "wide")
        for spread in options:
            tile = tile_of(kernel, architecture, dtype, padded_head_dim(head_dim), spread)
            if tile is not None and (
                spread != "narrow" or (gap_tokens is not None and tile.holds(gap_tokens))
            ):
                found[kernel] = KernelTile(tile, spread)
                break
        else:
            return None
    return found


def tile_of(
    kernel: Kernel, architecture: Architecture, dtype: torch.dtype, padded_dim: int, spread: Spread
) -> Tile | None:
    """Return the architecture's entry, or else that of sm_80, which newer GPUs can run too."""
    names = [entry_name(kernel, one, dtype, padded_dim, spread) for one in (architecture, ARCHITECTURES[0])]
    return table().get(names[0], table().get(names[1]))


def entry_name(
    kernel: Kernel, architecture: Architecture, dtype: torch.dtype, padded_dim: int, spread: Spread
) -> str:
    """Return the name of an entry of the table."""
    type_name = {torch.bfloat16: "bf16", torch.float32: "fp32"}.get(dtype, "")
    return f"{kernel} {architecture} {type_name} {padded_dim} {spread}"


@cache
def table() -> Mapping[str, Tile]:
    """Return the tiles by the names of their entries."""
    text = (resources.files("pretrain.model.fused.gpu") / "tile_sizes.json").read_text(encoding="utf-8")
    return {name: Tile(*sizes) for name, sizes in json.loads(text).items()}
