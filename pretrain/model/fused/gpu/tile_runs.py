"""Kernels that find which tiles each program works through: runs of consecutive ones, [B, Y, S, 2] (see `tables`).

Shapes: B lanes, Y programs, S runs.
"""

import triton
import triton.language as tl


@triton.jit
def _append_tile(tile, num_runs, end, runs, MAX_RUNS: tl.constexpr):
    """Add a tile to the last run, or begin a new one with it; return the number of runs and the end of the last."""
    if (num_runs == 0) | ((end < tile) & (num_runs < MAX_RUNS)):
        tl.store(runs + num_runs * 2, tile)
        num_runs += 1
    tl.store(runs + num_runs * 2 - 1, tile + 1)
    return num_runs, tile + 1


@triton.jit
def find_runs(
    outer_edge, outer_lowest, outer_highest, inner_edge, inner_lowest, inner_highest, runs, num_runs, num_inner,
    BY_ROWS: tl.constexpr, MAX_RUNS: tl.constexpr,
):  # fmt: skip
    """Find the runs of inner tiles for each outer one.

    `edge` is the highest number of ranks that rows see, and the lowest rank of keys; lowest and highest are of codes.
    """
    place = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    edge = tl.load(outer_edge + place)
    lowest, highest = tl.load(outer_lowest + place), tl.load(outer_highest + place)
    number, end = 0, -1
    for tile in range(num_inner):
        inner = tl.program_id(1) * num_inner + tile
        if BY_ROWS:
            sees = tl.load(inner_edge + inner) < edge
        else:
            sees = edge < tl.load(inner_edge + inner)
        sees = sees & (tl.load(inner_lowest + inner) <= highest) & (tl.load(inner_highest + inner) >= lowest)
        if sees:
            number, end = _append_tile(tile, number, end, runs + place * MAX_RUNS * 2, MAX_RUNS)
    tl.store(num_runs + place, number)


@triton.jit
def find_runs_of_distances(
    low, high, runs, num_runs, num_inner, COLUMNS: tl.constexpr, MAX_RUNS: tl.constexpr
):
    """Find the runs of tiles of rows that have any of J distances between `low` and `high`."""
    place = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    first = tl.program_id(0) * COLUMNS
    number, end = 0, -1
    for tile in range(num_inner):
        inner = tl.program_id(1) * num_inner + tile
        if (tl.load(low + inner) < first + COLUMNS) & (tl.load(high + inner) >= first):
            number, end = _append_tile(tile, number, end, runs + place * MAX_RUNS * 2, MAX_RUNS)
    tl.store(num_runs + place, number)
