"""Segment memory in files by lane: any range of lanes can be read, whatever ranges were written.

Shapes: B lanes, M memory, D model.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from cluster.errors import UserError, first_line
from pretrain.checkpoint.listing import FileEntry
from pretrain.checkpoint.tensor_files import write_tensors
from pretrain.model.segment_memory import SegmentMemory, concatenate

_NAME = re.compile(r"memory-(\d+)\.safetensors")


def memory_name(first_lane: int) -> str:
    """Return the name of the file with the memory of consecutive lanes from `first_lane` on."""
    return f"memory-{first_lane:05d}.safetensors"


def write_memory(path: Path, memory: SegmentMemory) -> FileEntry:
    """Write memory that is on the CPU. Raises OSError."""
    tensors = {f"layer-{number:04d}": layer for number, layer in enumerate(memory.layers_BMD)}
    return write_tensors(path, tensors | {"group": memory.group_BM, "document": memory.document_BM}, {})


def read_memory(paths: Iterable[Path], lanes: range) -> SegmentMemory:
    """Read the memory of consecutive `lanes` (at least one) from the files that hold some of them.

    Raises UserError when a file cannot be read or a lane is in none.
    """
    parts: list[SegmentMemory] = []
    next_lane = lanes.start
    files = sorted((_first_lane(path), path) for path in paths)
    ends = [first_lane for first_lane, _ in files[1:]] + [lanes.stop]
    for (first_lane, path), end in zip(files, ends, strict=True):
        # Files are of consecutive lanes, so their names tell which to open: with a thousand workers, few of a thousand.
        if first_lane >= lanes.stop or end <= lanes.start:
            continue
        try:
            part = _read_some(path, range(next_lane - first_lane, lanes.stop - first_lane))
        except (SafetensorError, OSError, KeyError) as error:
            raise UserError(
                f"{path} is damaged ({first_line(error)}): restore it or use another checkpoint"
            ) from None
        if part is not None and first_lane <= next_lane < lanes.stop:
            parts.append(part)
            next_lane += len(part.group_BM)
    if next_lane < lanes.stop:
        raise UserError(f"the checkpoint's memory of lane {next_lane} is missing: use another checkpoint")
    return concatenate(parts)


def count_lanes(paths: Iterable[Path]) -> int:
    """Return L, the number of lanes, from all memory files of a checkpoint."""
    files: list[Any] = [safe_open(path, framework="pt") for path in paths]
    return sum(int(file.get_slice("group").get_shape()[0]) for file in files)


def _first_lane(path: Path) -> int:
    matched = _NAME.fullmatch(path.name)
    if matched is None:
        raise UserError(f"{path} is no segment memory: use another checkpoint")
    return int(matched[1])


def _read_some(path: Path, rows: range) -> SegmentMemory | None:
    """Read those of `rows` that the file has; None if it has none of them."""
    file: Any = safe_open(path, framework="pt")
    (num_lanes, _) = file.get_slice("group").get_shape()
    rows = range(max(rows.start, 0), min(rows.stop, num_lanes))
    if not rows:
        return None
    layers = sorted(name for name in file.keys() if name.startswith("layer-"))
    cut = {name: file.get_slice(name)[rows.start : rows.stop] for name in [*layers, "group", "document"]}
    return SegmentMemory(tuple(cut[name] for name in layers), cut["group"], cut["document"])
