"""Tile sizes by measurement: candidates of `benchmarks.gpu_tiles` for the present GPU, one kernel at a time.

Writes tile_sizes.json, the committed table with what was found faster, which can be copied over it. A tile must compile
without spilled registers with everything, with nothing and with padding, as the committed ones do, and give the
committed tile's results.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from benchmarks import gpu_tiles
from benchmarks.gpu_day.day import SCALES, Day
from benchmarks.gpu_day.problems import GAP_TOKENS, two_streams
from benchmarks.gpu_day.timing import Work, side_by_side
from benchmarks.gpu_day.warming import in_parallel
from pretrain.model.fused.gpu.compilation import Configuration
from pretrain.model.fused.gpu.launch import (
    Problem,
    launch_distances,
    launch_forward,
    launch_keys,
    launch_rows,
    of_backward_kernels,
)
from pretrain.model.fused.gpu.tables import tables_of
from pretrain.model.fused.gpu.tile_sizes import (
    KERNELS,
    Kernel,
    KernelTile,
    Spread,
    Tile,
    architecture_of,
    entry_name,
    tiles_for,
)

TABLE = "Tiles, bf16"
FILE = "tile_sizes.json"
_CANDIDATES = 10
_LEAST_GAIN = 0.02
"""What is less faster than this is left as it is: measurements differ by as much."""
_TOLERANCE = 0.02
_DROPOUT = 0.1
_SEGMENT_TOKENS, _MEMORY_TOKENS, _LANES = 1024, 512, 8


def run(day: Day) -> None:
    """Tune the kernels for rows side by side, then those for scattered rows."""
    _write(day, {})
    spreads: tuple[Spread, ...] = ("narrow", "wide")
    entries = [(kernel, spread) for spread in spreads for kernel in KERNELS]
    numbers = [(entry, number) for entry in entries for number in range(_CANDIDATES)]
    # Those that are predicted to be the fastest come first; few rows are scattered, so their kernels come later.
    numbers.sort(key=lambda one: one[1] + (_CANDIDATES // 2 if one[0][1] == "wide" else 0))
    fitting = [True] * len(numbers)
    if day.has_gpu:
        warmed = in_parallel(
            warm, [(day.scale.name, *entry, number) for entry, number in numbers], day.left_s() / 2
        )
        fitting = [bool(one) for one in warmed]
    better: dict[str, list[int]] = {}
    for kernel, spread in entries if day.has_gpu else entries[:4]:
        if not day.has_time(1.5, f"{kernel}, {spread}"):
            continue
        options = [
            candidate(day.scale.head_dim, day.device, kernel, spread, number)
            for ((a_kernel, a_spread), number), fits in zip(numbers, fitting, strict=True)
            if (a_kernel, a_spread) == (kernel, spread) and fits
        ]
        found = _tune(day, kernel, spread, [one for one in options if one is not None])
        # Interpreted kernels say nothing of tiles.
        if found is not None and day.has_gpu:
            name = entry_name(kernel, architecture_of(day.device), torch.bfloat16, day.scale.head_dim, spread)
            better[name] = found
            _write(day, better)
    day.note(f"{FILE} is the committed table with {len(better)} entries changed")


def warm(scale_name: str, kernel: Kernel, spread: Spread, number: int) -> bool:
    """Compile a candidate, in a process of its own; return whether it fits and runs."""
    device, head_dim = torch.device("cuda"), SCALES[scale_name].head_dim
    architecture = architecture_of(device)
    tile = candidate(head_dim, device, kernel, spread, number)
    if tile is None:
        return False
    if not gpu_tiles.fits(
        Configuration(kernel, architecture, "bf16", head_dim, spread, tile), [architecture]
    ):
        return False
    launching(_problem(scale_name, device, kernel, spread, KernelTile(tile, spread)), kernel)()
    torch.cuda.synchronize()
    return True


def candidate(
    head_dim: int, device: torch.device, kernel: Kernel, spread: Spread, number: int
) -> Tile | None:
    """Return the tile that is predicted to be the fastest but `number`."""
    entry = Configuration(kernel, architecture_of(device), "bf16", head_dim, spread, Tile(16, 16, 4, 2))
    options = gpu_tiles.candidates(entry)
    if device.type != "cuda":
        # Interpreted, large tiles are the fastest, and a small problem has few of any.
        options = [one for one in options if one.tile.rows * one.tile.columns <= 32 * 64][:2]
    return options[number].tile if number < len(options) else None


def _problem(
    scale_name: str, device: torch.device, kernel: Kernel, spread: Spread, tile: KernelTile
) -> Problem:
    """Return a problem as in training: of both streams, or for scattered rows of the predictions alone."""
    scale = SCALES[scale_name]
    lengths = (_SEGMENT_TOKENS, _MEMORY_TOKENS) if device.type == "cuda" else scale.error_lengths
    lanes = _LANES if device.type == "cuda" else 1
    made = two_streams(scale.model["num_heads"], lanes, *lengths, scale.head_dim, device)
    query, content_bias, distance_bias, document, key, value, distance = made.inputs
    assert query is not None
    assert key is not None
    assert value is not None
    mask = made.mask
    if spread == "wide":
        mask = mask.rows_from(lengths[0])
        query = query[:, :, lengths[0] :]
        document = None if document is None else document[:, :, lengths[0] :]
    tiles = {each: committed_tile(each, device, scale.head_dim, spread) for each in KERNELS}
    tiles[kernel] = tile
    return Problem(
        query,
        content_bias,
        distance_bias,
        document,
        key,
        value,
        distance,
        tables_of(mask, tiles),
        tiles,
        scale.head_dim**-0.5,
        _DROPOUT,
        seed=1,
    )


def committed_tile(kernel: Kernel, device: torch.device, head_dim: int, spread: Spread) -> KernelTile:
    """Return what the committed table gives rows with a gap, or scattered rows.

    Where the entry for rows side by side does not hold the gap, it is the one for scattered rows.
    """
    gap_tokens = GAP_TOKENS if spread == "narrow" else None
    tiles = tiles_for(architecture_of(device), torch.bfloat16, head_dim, gap_tokens, has_distances=True)
    assert tiles is not None
    return tiles[kernel]


def launching(problem: Problem, kernel: Kernel) -> Callable[[], Sequence[Tensor | None]]:
    """Return a call of one kernel, whose inputs the others have made before."""
    if kernel == "forward":
        return lambda: list(launch_forward(problem))[:1]
    mixed, log_sum = launch_forward(problem)
    draw = torch.Generator().manual_seed(2)
    gradient = torch.randn(mixed.shape, generator=draw).to(mixed.device, mixed.dtype)
    shared = of_backward_kernels(problem, log_sum, gradient)
    launch_rows(problem, mixed, shared)
    if kernel == "rows":
        return lambda: list(launch_rows(problem, mixed, shared))
    launch = launch_keys if kernel == "keys" else launch_distances
    return lambda: list(launch(problem, shared))


def _tune(day: Day, kernel: Kernel, spread: Spread, tiles: list[Tile]) -> list[int] | None:
    """Add a row for each tile; return the numbers of one that is better than the committed one."""
    committed = committed_tile(kernel, day.device, day.scale.head_dim, spread)
    expected: Sequence[Tensor | None] = []
    works: dict[KernelTile, Work] = {}
    others = [KernelTile(tile, spread) for tile in tiles]
    for tile in [committed, *(one for one in others if one != committed)]:
        work = launching(_problem(day.scale.name, day.device, kernel, spread, tile), kernel)
        found = work()
        expected = expected or found
        if error := _largest_error(found, expected):
            day.note(f"{kernel}, {spread}, {tile}: its results are wrong by {error:.2g}")
        else:
            works[tile] = work
    times = side_by_side({str(tile): work for tile, work in works.items()}, day, seconds=1.0)
    of_committed = times[str(committed)].median_ms
    for tile in works:
        row = {
            "kernel": kernel,
            "rows": "side by side" if spread == "narrow" else "scattered",
            "tile": f"{tile.tile.rows}x{tile.tile.columns}",
            "made for": "side by side" if tile.spread == "narrow" else "scattered",
            "warps": tile.tile.warps,
            "stages": tile.tile.stages,
            "ms": times[str(tile)].median_ms,
            "rounds ms": times[str(tile)].spread,
            "of the committed": times[str(tile)].median_ms / of_committed,
            "committed": tile == committed,
        }
        day.add(TABLE, row)
    best = min(works, key=lambda tile: times[str(tile)].median_ms)
    if times[str(best)].median_ms > (1 - _LEAST_GAIN) * of_committed:
        return None
    return [best.tile.rows, best.tile.columns, best.tile.warps, best.tile.stages]


def _largest_error(found: Sequence[Tensor | None], expected: Sequence[Tensor | None]) -> float:
    """Return the largest error as a share of the largest number, 0 if it is small enough."""
    worst = 0.0
    for one, other in zip(found, expected, strict=True):
        if one is not None and other is not None:
            error = float(
                (one.float() - other.float()).abs().max() / other.float().abs().max().clamp(min=1e-6)
            )
            worst = max(worst, error if error == error else math.inf)
    return worst if worst > _TOLERANCE else 0.0


def _write(day: Day, better: Mapping[str, list[int]]) -> None:
    known: dict[str, list[int]] = json.loads(gpu_tiles.FILE.read_text()) | dict(better)
    (day.folder / FILE).write_text(gpu_tiles.table_text(known))
