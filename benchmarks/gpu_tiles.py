"""Choose the sizes of the attention kernels' tiles: the first that spill nothing, in the order of a prediction.

    python -m benchmarks.gpu_tiles              print what each needs: registers, shared memory, programs at once
    python -m benchmarks.gpu_tiles --check      exit with 1 if one lacks room, uses no tensor cores or, in bf16, spills
    python -m benchmarks.gpu_tiles --search     choose all anew (two hours of one core) and write tile_sizes.json
    python -m benchmarks.gpu_tiles --search --only "forward sm_90 bf16 64"

No GPU is needed. The prediction (`pretrain/plan/attention_time.py`) orders candidates and is no measurement;
`benchmarks.gpu_day` measures on a GPU.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
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
    Architecture,
    Tile,
    entry_name,
    padded_head_dim,
)
from pretrain.orders.config import ObjectiveConfig
from pretrain.plan.attention_time import cycles_per_pair

GAP_TOKENS = ObjectiveConfig().max_gap_tokens
"""The gap that narrow tiles must hold: `objective.max_gap_tokens`' default."""
TYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
FILE = Path(tile_sizes.__file__).with_name("tile_sizes.json")
_MOST_PAIRS_PER_THREAD = {"forward": 32, "rows": 16, "keys": 32, "distances": 32}
"""More spill registers: seen while trying."""


def candidates(entry: Configuration) -> list[Configuration]:
    """Return the tiles that are tried, the one that is predicted fastest first."""
    limit = _MOST_PAIRS_PER_THREAD[entry.kernel]
    limit = limit // 2 if entry.type_name == "fp32" or entry.head_dim > 64 else limit
    found = []
    for rows, columns, warps, stages in itertools.product((16, 32, 64), (16, 32, 64, 128), (4, 8), (2, 3, 1)):
        tile = Tile(rows, columns, warps, stages)
        has_room = rows * columns <= limit * 32 * warps
        if has_room and (entry.spread != "narrow" or tile.holds(GAP_TOKENS)):
            found.append(replace(entry, tile=tile))
    return sorted(found, key=lambda one: (predicted_cycles(one), (2, 3, 1).index(one.tile.stages)))


def predicted_cycles(entry: Configuration) -> float:
    """Return the predicted cycles of a multiprocessor per pair of row and column."""
    dim = padded_head_dim(entry.head_dim)
    return cycles_per_pair(entry.kernel, entry.architecture, entry.type_name, entry.spread, entry.tile, dim)


def variants(entry: Configuration) -> list[Configuration]:
    """Return what an entry must compile for: everything, less and less of it, nothing, padded head dimensions."""
    biases = (False,) if entry.spread == "none" else (True, False)
    with_flags = [
        replace(entry, has_documents=documents, has_dropout=dropout, has_biases=has_biases)
        for documents, dropout, has_biases in itertools.product((True, False), (True, False), biases)
    ]
    return [*with_flags, replace(entry, head_dim=entry.head_dim * 3 // 4)]


def misfits_among_variants(only: str) -> list[Configuration]:
    """Return which variants of the table's entries whose names contain `only` do not fit, wherever they are used."""
    entries_with_tiles = [
        replace(entry, tile=tile_sizes.table()[name_of(entry)])
        for entry in entries()
        if only in name_of(entry)
    ]
    used = [
        replace(variant, architecture=architecture)
        for entry in entries_with_tiles
        for variant in variants(entry)
        for architecture in architectures_of(entry)
    ]
    return [one for one in used if not compile_kernel(one).fits(one.architecture)]


def fits(tried: Configuration, architectures: Iterable[Architecture]) -> bool:
    """Return whether a configuration fits these architectures with everything, with nothing and with padding."""
    everything, *_, nothing, padding = variants(tried)
    try:
        return all(
            compile_kernel(replace(one, architecture=architecture)).fits(architecture)
            for architecture in architectures
            for one in (everything, nothing, padding)
        )
    except Exception as error:
        print(f"{tried}: {type(error).__name__}", file=sys.stderr)
        return False


def search(entry: Configuration) -> Tile | None:
    """Return the first candidate that fits wherever it is used.

    `tests/unit/pretrain/model/gpu/test_compiled_kernels.py` compiles all `variants` of the entries "bf16 64 narrow".
    """
    return next((one.tile for one in candidates(entry) if fits(one, architectures_of(entry))), None)


def architectures_of(entry: Configuration) -> tuple[Architecture, ...]:
    """Return the architectures that use an entry."""
    return (entry.architecture,) if _has_own_tiles(entry.type_name, entry.head_dim) else ARCHITECTURES


def _has_own_tiles(type_name: str, padded_dim: int) -> bool:
    """Return whether newer architectures have entries of their own: where time matters."""
    return type_name == "bf16" and padded_dim >= 64


def entries() -> Iterator[Configuration]:
    """Yield all entries of the table, with everything switched on and the smallest tile.

    Architectures without an entry use that of sm_80.
    """
    for kernel, architecture, type_name, dim, spread in itertools.product(
        KERNELS, ARCHITECTURES, TYPES, PADDED_HEAD_DIMS, SPREADS
    ):
        if kernel == "distances" and spread == "none":
            continue
        if architecture == "sm_80" or _has_own_tiles(type_name, dim):
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
    for entry in entries():
        name = name_of(entry)
        if only not in name:
            continue
        tile = search(entry)
        print(f"{name}: {tile}", flush=True)
        known: dict[str, list[int]] = json.loads(FILE.read_text()) if FILE.exists() else {}
        known.pop(name, None)
        if tile is not None:
            known[name] = [tile.rows, tile.columns, tile.warps, tile.stages]
        FILE.write_text(table_text(known))


def table_text(table: Mapping[str, list[int]]) -> str:
    """Return the text of the file with these entries, one a line."""
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(table[key])}" for key in sorted(table))
    return f"{{\n{lines}\n}}\n"


def print_resources(only: str) -> int:
    """Print what every entry of the table needs, with everything switched on; return how many do not fit.

    A float32 product is three of TF32: where no tile holds that in registers, the one that spills least is kept.
    """
    rows, num_misfits, num_spilling = [], 0, 0
    used = [replace(entry, architecture=one) for entry in entries() for one in architectures_of(entry)]
    for entry in used:
        name = name_of(entry)
        tile = tile_sizes.tile_of(
            entry.kernel, entry.architecture, TYPES[entry.type_name], entry.head_dim, entry.spread
        )
        if tile is None or only not in name:
            continue
        compiled = compile_kernel(replace(entry, tile=tile))
        is_allowed = compiled.runs if entry.type_name == "fp32" else compiled.fits
        num_misfits += not is_allowed(entry.architecture)
        num_spilling += compiled.spilled_bytes > 0
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
    print(f"{len(rows)} kernels, {num_misfits} of them do not fit, {num_spilling} spill")
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
