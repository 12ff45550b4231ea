"""The targets beside what was measured."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu_day import kernel_times, step_memory, step_times
from benchmarks.gpu_day.day import SCALES
from benchmarks.gpu_day.timing import EXPONENT

LEAST_SPEEDUP, LEAST_OF_CAUSAL = 2.0, 0.8
MFU, LEAST_MFU = 0.50, 0.35
MOST_EXPONENT = 1.1
"""Of linear growth, with what does not grow and what an allocator rounds."""
_NOT_MEASURED = "not measured"


def rows(folder: Path, scale_name: str) -> list[dict[str, Any]]:
    """Return a row for each target, from the parts' files in the folder."""
    found = [*_speedup(folder, scale_name), *_steps(folder, scale_name), *_memory(folder)]
    return [
        {"target": target, "measured": _NOT_MEASURED if value is None else value, "held": held}
        for target, value, held in found
    ]


Target = tuple[str, float | None, str]


def _speedup(folder: Path, scale_name: str) -> Iterator[Target]:
    length = SCALES[scale_name].kernel_lengths[0]
    for order in ("left to right", "any order"):
        value = None
        for row in _table(folder, "kernel_times", kernel_times.TABLE):
            if (row["L = K"], row["order"], row["attention"]) == (length, order, kernel_times.SDPA):
                value = row["kernels are faster by"]
        name = f"attention with backward pass at L = K = {length}, {order}: at least {LEAST_SPEEDUP:g} times as fast"
        yield f"{name} as SDPA with a mask", value, _held(value, LEAST_SPEEDUP)


def _steps(folder: Path, scale_name: str) -> Iterator[Target]:
    both = [
        *_table(folder, "step_times", step_times.TABLE),
        *_table(folder, "compiled_step_times", step_times.COMPILED_TABLE),
    ]
    ours = [row for row in both if row["model"] in (step_times.OURS, step_times.OURS_DROPOUT)]
    for shape in map(str, SCALES[scale_name].steps):
        value = _largest(ours, shape, "of causal tokens/s")
        name = f"{shape}: at least {LEAST_OF_CAUSAL:g} of the tokens/s of a causal model of the same size"
        yield name, value, _held(value, LEAST_OF_CAUSAL)
    shape = str(SCALES[scale_name].steps[0])
    value = _largest(ours, shape, "MFU, data sheet peak")
    yield f"{shape}: MFU of {MFU:.0%}, of the data sheet's peak", value, _held(value, MFU)
    yield f"{shape}: MFU of at least {LEAST_MFU:.0%}", value, _held(value, LEAST_MFU)


def _largest(found: list[dict[str, Any]], shape: str, column: str) -> float | None:
    """Return the best of the ways to make a step, with or without torch.compile and dropout."""
    values = [row[column] for row in found if row["segments"] == shape and column in row]
    return max(values, default=None)


def _memory(folder: Path) -> Iterator[Target]:
    column = EXPONENT
    for part, table, what in (
        ("step_memory", step_memory.GROWTH_TABLE, "a training pass"),
        ("kernel_times", kernel_times.GROWTH_TABLE, "one attention"),
    ):
        values = [row[column] for row in _table(folder, part, table) if row["attention"] == "kernels"]
        value = values[0] if values else None
        held = "" if value is None else "yes" if value <= MOST_EXPONENT else "no"
        yield f"memory of {what} is linear in L: exponent at most {MOST_EXPONENT:g}", value, held


def _held(value: float | None, least: float) -> str:
    return "" if value is None else "yes" if value >= least else "no"


def _table(folder: Path, part: str, table: str) -> list[dict[str, Any]]:
    path = folder / f"{part}.json"
    if not path.exists():
        return []
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["tables"].get(table, [])
    return found
