"""An `AttentionMask` as the kernels read it: rows and keys by position, and the tiles that see each other.

All of it grows with the number of rows and keys, not with their product, and is made on the device without a wait.

Shapes: B lanes, Q rows, K keys, X rows padded, C columns padded (a column is a position, counted from the memory's
first), Y tiles of rows or columns, I rows of a tile, J columns of a tile, S runs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pretrain.model.fused.gpu.tile_runs import find_runs, find_runs_of_distances
from pretrain.model.fused.gpu.tile_sizes import MAX_RUNS, Kernel, KernelTile, TableSizes, padded
from pretrain.model.layout import UNFILLED_GROUP, AttentionMask

_HIGHEST = torch.iinfo(torch.int32).max
_HIDDEN = -1
_NOT_FOUND = -2


@dataclass(frozen=True)
class Rows:
    """The rows by position, int32 [B, X]; padding has index -1 and sees nothing."""

    index_BX: Tensor
    shift_BX: Tensor
    """Row i and column c have distance number c + shift."""
    group_code_BX: Tensor
    """A row sees the keys whose code is at least this and less than this + `num_codes_BX`."""
    num_codes_BX: Tensor
    document_BX: Tensor


@dataclass(frozen=True)
class Columns:
    """The keys by position, int32 [B, C]; a column without a key has index -1.

    Ranks are numbered from 0 to K - 1, groups likewise; a key's code is group * (K + 1) + rank, and -1 for hidden keys.
    """

    index_BC: Tensor
    code_BC: Tensor
    document_BC: Tensor


@dataclass(frozen=True)
class TileTables:
    """What a kernel knows of tiles.

    `shift_BY` is the smallest shift of each tile of rows, `halves_BY` how many half bands of distances it needs.
    Each program works through runs of consecutive tiles, first and end [B, Y, S, 2]; `num_runs_BY` says how many.
    """

    shift_BY: Tensor
    halves_BY: Tensor
    runs_BYS2: Tensor
    num_runs_BY: Tensor


@dataclass(frozen=True)
class MaskTables:
    """All tables of a mask."""

    rows: Rows
    columns: Columns
    of_kernels: Mapping[Kernel, TileTables]

    def packed(self) -> Tensor:
        """Return all numbers in one tensor, for `unpacked`."""
        of_kernels = [tensor for tables in self.of_kernels.values() for tensor in vars(tables).values()]
        tensors = [*vars(self.rows).values(), *vars(self.columns).values(), *of_kernels]
        return torch.cat([tensor.flatten() for tensor in tensors])

    @classmethod
    def unpacked(cls, packed_X: Tensor, sizes: TableSizes) -> "MaskTables":
        """Return views of what `packed` returned."""
        parts = iter(torch.split(packed_X, [math.prod(shape) for shape in sizes.shapes()]))
        tensors = [part.view(shape) for part, shape in zip(parts, sizes.shapes(), strict=True)]
        tiles = [TileTables(*tensors[first : first + 4]) for first in range(8, len(tensors), 4)]
        of_kernels = dict(zip(sizes.tiles, tiles, strict=True))
        return cls(Rows(*tensors[:5]), Columns(*tensors[5:8]), of_kernels)


def tables_of(mask: AttentionMask, tiles: Mapping[Kernel, KernelTile]) -> MaskTables:
    """Make the tables of a mask; no wait for the device."""
    rows, columns = _rows_and_columns(mask)
    num_keys = mask.keys.position_BX.shape[1]
    of_tiles: dict[tuple[str, int, int], tuple[Tensor, Tensor]] = {}
    of_kernels: dict[Kernel, TileTables] = {}
    for kernel, chosen in tiles.items():
        row_tile, column_tile = chosen.tile.rows, chosen.tile.columns
        direction = "columns" if kernel == "keys" else "rows"
        if (direction, row_tile, column_tile) not in of_tiles:
            of_tiles[direction, row_tile, column_tile] = _runs(
                rows, columns, num_keys, row_tile, column_tile, by_rows=direction == "rows"
            )
        shift_BYI = _tiles(rows.shift_BX, row_tile)
        shift_BY, highest_BY = shift_BYI.amin(dim=-1), shift_BYI.amax(dim=-1)
        halves_BY = (highest_BY - shift_BY + column_tile - 1) // column_tile + 1
        runs = of_tiles[direction, row_tile, column_tile]
        if kernel == "distances":
            num_chunks = -(-len(mask.span) // column_tile)
            runs = _runs_of_distances(*runs, shift_BY, highest_BY, num_chunks, column_tile)
        of_kernels[kernel] = TileTables(shift_BY, halves_BY, *runs)
    return MaskTables(rows, columns, of_kernels)


def _rows_and_columns(mask: AttentionMask) -> tuple[Rows, Columns]:
    keys, extent = mask.keys, mask.keys.extent
    memory_tokens = mask.memory_tokens
    num_keys, num_columns = keys.position_BX.shape[1], padded(memory_tokens + extent)
    column_BK = keys.position_BX + memory_tokens
    group_BK, group_BQ = _numbered(keys.group_BX, mask.group_BQ)
    sorted_rank_BK = keys.rank_BX.sort(dim=1).values
    rank_BK = torch.searchsorted(sorted_rank_BK, keys.rank_BX.contiguous())
    code_BK = (group_BK * (num_keys + 1) + rank_BK).masked_fill(keys.group_BX == UNFILLED_GROUP, _HIDDEN)
    # As many ranks are below the row's bound.
    num_codes_BQ = torch.searchsorted(sorted_rank_BK, mask.bound_BQ.contiguous())

    def by_column(values_BK: Tensor) -> Tensor:
        empty_BC = values_BK.new_full((values_BK.shape[0], num_columns), -1, dtype=torch.int32)
        return empty_BC.scatter(1, column_BK, values_BK.int())

    order_BQ = mask.position_BQ.argsort(dim=1, stable=True)
    padding = padded(order_BQ.shape[1]) - order_BQ.shape[1]

    def by_row(values_BQ: Tensor) -> Tensor:
        return functional.pad(values_BQ.gather(1, order_BQ).int(), (0, padding))

    shift_BQ = (extent - 1 - mask.position_BQ).gather(1, order_BQ).int()
    document_BK, document_BQ = group_BK, group_BQ
    if mask.document_BQ is not None and keys.document_BX is not None:
        document_BK, document_BQ = _numbered(keys.document_BX, mask.document_BQ)
    index_K = torch.arange(num_keys, device=column_BK.device)
    rows = Rows(
        functional.pad(order_BQ.int(), (0, padding), value=-1),
        # Padding is no farther away than the last row.
        torch.cat([shift_BQ, shift_BQ[:, -1:].expand(-1, padding)], dim=1),
        by_row(group_BQ.clamp(min=0) * (num_keys + 1)),
        by_row(num_codes_BQ.masked_fill(group_BQ < 0, 0)),
        by_row(document_BQ),
    )
    return rows, Columns(by_column(index_K.expand_as(column_BK)), by_column(code_BK), by_column(document_BK))


def _numbered(keys_BK: Tensor, rows_BQ: Tensor) -> tuple[Tensor, Tensor]:
    """Return small numbers that are equal where the int64 ones of a lane are; rows that equal no key get -2."""
    sorted_BK = keys_BK.sort(dim=1).values
    place_BQ = torch.searchsorted(sorted_BK, rows_BQ.contiguous())
    found_BQ = sorted_BK.gather(1, place_BQ.clamp(max=sorted_BK.shape[1] - 1)) == rows_BQ
    return torch.searchsorted(sorted_BK, keys_BK.contiguous()), place_BQ.where(found_BQ, _NOT_FOUND)


def _runs(
    rows: Rows, columns: Columns, num_keys: int, row_tile: int, column_tile: int, by_rows: bool
) -> tuple[Tensor, Tensor]:
    """Return the runs of tiles of columns that tiles of rows see, or of rows that see tiles of columns."""
    code_BYI, num_codes_BYI = (_tiles(part, row_tile) for part in (rows.group_code_BX, rows.num_codes_BX))
    sees_BYI = num_codes_BYI > 0
    of_rows = (
        num_codes_BYI.amax(dim=-1),
        code_BYI.where(sees_BYI, _HIGHEST).amin(dim=-1),
        (code_BYI + num_codes_BYI).where(sees_BYI, _HIDDEN).amax(dim=-1),
    )
    code_BYJ = _tiles(columns.code_BC, column_tile)
    shown_BYJ = code_BYJ != _HIDDEN
    of_columns = (
        (code_BYJ % (num_keys + 1)).where(shown_BYJ, _HIGHEST).amin(dim=-1),
        code_BYJ.where(shown_BYJ, _HIGHEST).amin(dim=-1),
        code_BYJ.where(shown_BYJ, _HIDDEN).amax(dim=-1),
    )
    outer, inner = (of_rows, of_columns) if by_rows else (of_columns, of_rows)
    lanes, num_tiles = outer[0].shape
    runs_BYS2, num_runs_BY = _empty_runs(lanes, num_tiles, code_BYI.device)
    find_runs[(num_tiles, lanes)](
        *outer, *inner, runs_BYS2, num_runs_BY, inner[0].shape[1], BY_ROWS=by_rows, MAX_RUNS=MAX_RUNS
    )
    return runs_BYS2, num_runs_BY


def _runs_of_distances(
    seen_BYS2: Tensor,
    num_seen_BY: Tensor,
    lowest_BY: Tensor,
    highest_BY: Tensor,
    num_chunks: int,
    column_tile: int,
) -> tuple[Tensor, Tensor]:
    """Return the runs of tiles of rows in which each J consecutive distances occur between rows and keys they see."""
    last_BY1 = (num_seen_BY - 1).clamp(min=0)[:, :, None].long()
    first_BY = seen_BYS2[:, :, 0, 0] * column_tile
    end_BY = seen_BYS2[..., 1].gather(2, last_BY1)[..., 0] * column_tile
    sees_none_BY = num_seen_BY == 0
    low_BY = (first_BY + lowest_BY).masked_fill(sees_none_BY, _HIGHEST)
    high_BY = (end_BY - 1 + highest_BY).masked_fill(sees_none_BY, _HIDDEN)
    runs_BYS2, num_runs_BY = _empty_runs(low_BY.shape[0], num_chunks, low_BY.device)
    find_runs_of_distances[(num_chunks, low_BY.shape[0])](
        low_BY, high_BY, runs_BYS2, num_runs_BY, low_BY.shape[1], COLUMNS=column_tile, MAX_RUNS=MAX_RUNS
    )
    return runs_BYS2, num_runs_BY


def _tiles(values_BX: Tensor, tile: int) -> Tensor:
    return values_BX.view(values_BX.shape[0], -1, tile)


def _empty_runs(lanes: int, num_tiles: int, device: torch.device) -> tuple[Tensor, Tensor]:
    runs_BYS2 = torch.zeros(lanes, num_tiles, MAX_RUNS, 2, dtype=torch.int32, device=device)
    return runs_BYS2, torch.zeros(lanes, num_tiles, dtype=torch.int32, device=device)
