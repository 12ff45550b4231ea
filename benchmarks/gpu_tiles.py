"""Choose the sizes of the attention kernels' tiles: the first that spill nothing, in the order of a prediction.

    python -m benchmarks.gpu_tiles              print what each needs: registers, shared memory, programs at once
    python -m benchmarks.gpu_tiles --check      exit with 1 if one spills, lacks room or uses no tensor cores
    python -m benchmarks.gpu_tiles --search     choose all anew (two hours of one core) and write tile_sizes.json
    python -m benchmarks.gpu_tiles --search --only "forward sm_90 bf16 64"

No GPU is needed. The prediction divides a multiprocessor's cycles among matrix products, shared memory and arithmetic;
it orders candidates and is no measurement. `benchmarks.gpu_day` measures the best ones on a GPU.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.model_machine import print_table
from pretrain.model.fused.gpu import tile_sizes
from pretrain.model.fused.gpu.compilation import Configuration, compile_kernel
from pretrain.model.fused.gpu.tile_sizes import (
    ARCHITECTURES,
    KERNELS,
    PADDED_HEAD_DIMS,
    SPREADS,
    Tile,
    entry_name,
)
from pretrain.model.fused.gpu.work import work_of

GAP_TOKENS = 32
"""The gap that narrow tiles must hold: `objective.max_gap_tokens`' default."""
TYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
FILE = Path(tile_sizes.__file__).with_name("tile_sizes.json")
_FLOPS_PER_CYCLE = {
    ("sm_80", False): 2048,
    ("sm_90", False): 2500,
    ("sm_90", True): 4096,
    ("sm_100", False): 2048,
    ("sm_100", True): 8192,
}
"""bf16, of one multiprocessor, by whether tiles are large enough for wgmma or tcgen05: data sheets; mma.sync on Hopper
reaches about 60 % of wgmma's."""
_SHARED_BYTES_PER_CYCLE = 128
_LANES = {"sm_80": 64, "sm_90": 128, "sm_100": 128}
_OPERATIONS_PER_PAIR = {"forward": 22, "rows": 26, "keys": 26, "distances": 32}


def candidates(configuration: Configuration) -> list[Configuration]:
    """Return the tiles that are tried, the one that is predicted fastest first."""
    spread = configuration.spread
    found = []
    for rows, columns, warps, stages in itertools.product((16, 32, 64), (16, 32, 64, 128), (4, 8), (2, 3, 1)):
        tile = Tile(rows, columns, warps, stages)
        if spread != "narrow" or tile.holds(GAP_TOKENS):
            found.append(replace(configuration, tile=tile))
    return sorted(found, key=lambda one: (cycles_per_pair(one), -one.tile.stages % 3))


def cycles_per_pair(configuration: Configuration) -> float:
    """Return the predicted cycles of a multiprocessor per pair of row and column."""
    tile, kernel, dim = configuration.tile, configuration.kernel, configuration.head_dim
    is_float32 = configuration.type_name == "fp32"
    element_bytes = 4 if is_float32 else 2
    work = work_of(kernel, configuration.spread, tile, num_halves=3)
    left_rows = tile.rows if kernel in ("forward", "rows") else tile.columns
    # wgmma and tcgen05 take 64 rows of bf16; a tile for 8 warps of fewer rows is computed twice.
    is_large = left_rows >= 64 and not is_float32 and configuration.architecture != "sm_80"
    repeats = 2 if is_large and tile.warps == 8 and left_rows < 128 else 1
    rate = _FLOPS_PER_CYCLE[configuration.architecture, is_large] / (8 if is_float32 else 1)
    products = repeats * work.flops(tile, dim) / rate
    # Loads are written once; a product reads both factors, without wgmma for each pair of warps anew.
    pairs = tile.rows * tile.columns
    reads = work.products * (tile.rows + tile.columns) * dim * element_bytes * (1 if is_large else 2)
    moved = work.loaded_bytes(dim, element_bytes) + reads + 5 * 4 * pairs * work.gathers
    arithmetic = _OPERATIONS_PER_PAIR[kernel] * pairs / _LANES[configuration.architecture]
    least, middle, most = sorted((products, moved / _SHARED_BYTES_PER_CYCLE, arithmetic))
    # A program alone on its multiprocessor overlaps little of its work.
    return (most + (0.7 if tile.warps == 8 else 0.3) * (least + middle)) / pairs


def variants(entry: Configuration) -> list[Configuration]:
    """Return what an entry must compile for: documents, dropout and biases or none, a head dimension with padding."""
    biases = (False,) if entry.spread == "none" else (True, False)
    with_flags = [
        replace(entry, has_documents=documents, has_dropout=dropout, has_biases=has_biases)
        for documents, dropout, has_biases in itertools.product((True, False), (True, False), biases)
    ]
    return [*with_flags, replace(entry, head_dim=entry.head_dim * 3 // 4)]


def search(configuration: Configuration) -> Tile | None:
    """Return the first candidate of which all variants fit."""
    for candidate in candidates(configuration):
        try:
            if all(compile_kernel(one).fits(one.architecture) for one in variants(candidate)):
                return candidate.tile
        except Exception as error:
            print(f"{candidate}: {type(error).__name__}", file=sys.stderr)
    return None


def entries() -> Iterator[Configuration]:
    """Yield all entries of the table, with everything switched on and the smallest tile."""
    for kernel, architecture, type_name, dim, spread in itertools.product(
        KERNELS, ARCHITECTURES, TYPES, PADDED_HEAD_DIMS, SPREADS
    ):
        if not (kernel == "distances" and spread == "none"):
            smallest = Tile(16, 16, 4, 2)
            yield Configuration(
                kernel, architecture, type_name, dim, spread, smallest, has_biases=spread != "none"
            )


def name_of(entry: Configuration) -> str:
    """Return the name of an entry in the table."""
    dtype = TYPES[entry.type_name]
    return entry_name(entry.kernel, entry.architecture, dtype, entry.head_dim, entry.spread)


def write_table(only: str) -> None:
    """Search for the entries whose name contains `only`, and write the file after each."""
    known: dict[str, list[int]] = json.loads(FILE.read_text()) if FILE.exists() else {}
    for entry in entries():
        name = name_of(entry)
        if only not in name:
            continue
        tile = search(entry)
        print(f"{name}: {tile}", flush=True)
        known.pop(name, None)
        if tile is not None:
            known[name] = [tile.rows, tile.columns, tile.warps, tile.stages]
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(known[key])}" for key in sorted(known))
        FILE.write_text(f"{{\n{lines}\n}}\n")


def print_resources(only: str) -> int:
    """Print what every entry of the table needs, with everything switched on; return how many do not fit."""
    rows, num_misfits = [], 0
    for entry in entries():
        name = name_of(entry)
        tile = tile_sizes.table().get(name)
        if tile is None or only not in name:
            continue
        compiled = compile_kernel(replace(entry, tile=tile))
        num_misfits += not compiled.fits(entry.architecture)
        instructions = ", ".join(
            f"{count} {name}" for name, count in compiled.tensor_core_instructions.items()
        )
        rows.append(
            [
                name,
                f"{tile.rows}x{tile.columns}, {tile.warps}, {tile.stages}",
                str(compiled.registers),
                str(compiled.spilled_bytes),
                f"{compiled.shared_bytes / 1024:.1f}",
                str(compiled.programs_per_multiprocessor),
                f"{tile.warps * compiled.programs_per_multiprocessor / 64:.0%}",
                instructions,
            ]
        )
    sizes = ["registers", "spilled", "shared KiB", "programs", "occupancy"]
    head = ["kernel", "tile, warps, stages", *sizes, "tensor cores"]
    print_table("Attention kernels, compiled", head, rows)
    print(f"{len(rows)} kernels, {num_misfits} of them do not fit")
    return num_misfits


def main() -> int:
    """Print or write the table; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", default="", help="entries whose names contain this")
    arguments = parser.parse_args()
    if arguments.search:
        write_table(arguments.only)
        return 0
    num_misfits = print_resources(arguments.only)
    return int(arguments.check and num_misfits > 0)


if __name__ == "__main__":
    sys.exit(main())
