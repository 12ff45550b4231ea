"""Which tiles a kernel visits: all that anybody sees, and no others."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pretrain.model.fused.gpu.tables import MaskTables, tables_of
from pretrain.model.fused.gpu.tile_sizes import MAX_RUNS, Kernel, KernelTile, Tile
from pretrain.model.layout import AttentionMask, DistanceSpan, TokenLayout
from tests.unit.pretrain.model.fused_cases import Shape, make_problem

TILE = Tile(16, 32, 4, 2)
TILES: dict[Kernel, KernelTile] = {
    kernel: KernelTile(TILE, "wide") for kernel in ("forward", "rows", "keys", "distances")
}


def _visits(tables: MaskTables, kernel: Kernel, lane: int, program: int) -> set[int]:
    of_kernel = tables.of_kernels[kernel]
    runs = of_kernel.runs_BYS2[lane, program, : int(of_kernel.num_runs_BY[lane, program])].tolist()
    return {tile for first, end in runs for tile in range(first, end)}


def _seen_pairs(mask: AttentionMask, tables: MaskTables, lane: int) -> set[tuple[int, int]]:
    """The sorted row and the column of every pair that sees each other."""
    visible_QK = mask.dense().visible_BQK[lane]
    place_of_row = {
        int(row): place for place, row in enumerate(tables.rows.index_BX[lane].tolist()) if row >= 0
    }
    columns = (mask.keys.position_BX[lane] + mask.memory_tokens).tolist()
    return {(place_of_row[row], columns[key]) for row, key in visible_QK.nonzero().tolist()}


@settings(max_examples=25)
@given(
    length=st.integers(1, 150),
    memory=st.integers(0, 70),
    predicted=st.integers(0, 60),
    gap=st.integers(0, 40),
    seed=st.integers(0, 1000),
)
def test_the_visited_tiles_are_those_that_see_each_other(
    length: int, memory: int, predicted: int, gap: int, seed: int
) -> None:
    shape = Shape(1, 2, length, memory, predicted, 8, gap)
    mask = make_problem(shape, seed).mask
    tables = tables_of(mask, TILES)
    for lane in range(2):
        seen = _seen_pairs(mask, tables, lane)
        wanted = {(row // TILE.rows, column // TILE.columns) for row, column in seen}
        shift_X = tables.rows.shift_BX[lane].tolist()
        distances = {((row // TILE.rows), (column + shift_X[row]) // TILE.columns) for row, column in seen}
        for tile in range(tables.rows.index_BX.shape[1] // TILE.rows):
            assert {column for row, column in wanted if row == tile} <= _visits(tables, "forward", lane, tile)
        for tile in range(tables.columns.index_BC.shape[1] // TILE.columns):
            assert {row for row, column in wanted if column == tile} <= _visits(tables, "keys", lane, tile)
        for chunk in range(-(-len(mask.span) // TILE.columns)):
            rows = {row for row, distance in distances if distance == chunk}
            assert rows <= _visits(tables, "distances", lane, chunk)


def _mask(rank_L: torch.Tensor, group_L: torch.Tensor, num_rows: int) -> AttentionMask:
    content = TokenLayout.contiguous(rank_L[None], group_L[None])
    nothing = content.at(torch.zeros(1, 0, dtype=torch.int64))
    return AttentionMask.of_streams(content, nothing, content, DistanceSpan.of_segment(num_rows, 0))


def test_what_comes_later_in_the_order_is_skipped() -> None:
    mask = _mask(torch.arange(256), torch.zeros(256, dtype=torch.int64), 256)
    tables = tables_of(mask, TILES)
    for tile in range(16):
        assert _visits(tables, "forward", 0, tile) == set(range((tile * 16 + 15) // 32 + 1))
    for tile in range(8):
        assert _visits(tables, "keys", 0, tile) == set(range(tile * 2, 16))
    # No row has a key after it.
    assert _visits(tables, "distances", 0, 256 // 32 + 1) == set()


def test_other_groups_are_skipped() -> None:
    group_L = torch.arange(256) // 64
    tables = tables_of(_mask(torch.zeros(256, dtype=torch.int64), group_L, 256), TILES)
    for tile in range(16):
        group = tile // 4
        assert _visits(tables, "forward", 0, tile) == {2 * group, 2 * group + 1}


def test_a_hole_in_the_middle_is_skipped_by_its_context() -> None:
    rank_L = torch.zeros(256, dtype=torch.int64)
    rank_L[64:192] = torch.arange(1, 129)
    tables = tables_of(_mask(rank_L, torch.zeros_like(rank_L), 256), TILES)
    assert _visits(tables, "forward", 0, 0) == {0, 1, 6, 7}
    assert tables.of_kernels["forward"].num_runs_BY[0, 0] == 2
    assert _visits(tables, "forward", 0, 11) == set(range(8))


def test_more_runs_than_there_is_room_for_are_joined() -> None:
    rank_L = (torch.arange(1024) // 32 % 2) * 5
    tables = tables_of(_mask(rank_L, torch.zeros_like(rank_L), 1024), TILES)
    assert tables.of_kernels["forward"].num_runs_BY[0, 0] == MAX_RUNS
    assert _visits(tables, "forward", 0, 0) >= set(range(0, 32, 2))
