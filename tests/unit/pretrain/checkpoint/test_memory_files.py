"""Memory is found by lane: whoever wrote it, any range can be read."""

from pathlib import Path

import pytest
import torch

from cluster.errors import UserError
from pretrain.checkpoint.memory_files import count_lanes, memory_name, read_memory, write_memory
from pretrain.model.segment_memory import SegmentMemory
from tests.checkpoints import memory_of

LANES = 8


def written(folder: Path, *bounds: int) -> list[Path]:
    """Files of the lanes between neighbouring bounds, in no order."""
    paths = []
    for start, stop in zip(bounds, bounds[1:], strict=False):
        paths.append(folder / memory_name(start))
        write_memory(paths[-1], memory_of(range(start, stop), step=3))
    return paths[::-1]


def equal(one: SegmentMemory, other: SegmentMemory) -> bool:
    layers = zip(one.layers_BMD, other.layers_BMD, strict=True)
    return (
        all(torch.equal(left, right) and left.dtype == right.dtype for left, right in layers)
        and torch.equal(one.group_BM, other.group_BM)
        and torch.equal(one.document_BM, other.document_BM)
    )


@pytest.mark.parametrize("bounds", [(0, 8), (0, 4, 8), (0, 2, 4, 6, 8), (0, 1, 7, 8)])
def test_every_range_of_lanes_comes_back(tmp_path: Path, bounds: tuple[int, ...]) -> None:
    paths = written(tmp_path, *bounds)
    assert count_lanes(paths) == LANES
    for start in range(LANES):
        for stop in range(start + 1, LANES + 1):
            lanes = range(start, stop)
            assert equal(read_memory(paths, lanes), memory_of(lanes, step=3)), lanes


def test_only_the_files_with_those_lanes_are_needed(tmp_path: Path) -> None:
    paths = written(tmp_path, 0, 4, 8)
    (tmp_path / memory_name(0)).write_bytes(b"")
    assert equal(read_memory([tmp_path / memory_name(4)], range(5, 7)), memory_of(range(5, 7), step=3))
    with pytest.raises(UserError, match="memory-00000.safetensors is damaged"):
        read_memory(paths, range(8))


def test_a_missing_lane_is_named(tmp_path: Path) -> None:
    paths = written(tmp_path, 0, 2, 4)
    with pytest.raises(UserError, match="memory of lane 4 is missing"):
        read_memory(paths, range(3, 6))
    with pytest.raises(UserError, match="memory of lane 2 is missing"):
        read_memory([path for path in paths if path.name == memory_name(0)], range(4))


def test_a_model_without_memory_has_lanes_all_the_same(tmp_path: Path) -> None:
    empty = memory_of(range(4), step=0).without_past()
    write_memory(tmp_path / memory_name(0), empty)
    read = read_memory([tmp_path / memory_name(0)], range(1, 3))
    assert read.group_BM.shape == (2, 0)
    assert [tuple(layer.shape) for layer in read.layers_BMD] == [(2, 0, 4)] * 2


def test_files_of_other_lanes_are_not_opened(tmp_path: Path) -> None:
    paths = written(tmp_path, 0, 2, 4, 6, 8)
    for start in (0, 6):
        (tmp_path / memory_name(start)).write_bytes(b"")
    assert equal(read_memory(paths, range(2, 6)), memory_of(range(2, 6), step=3))
    assert equal(read_memory(paths, range(3, 4)), memory_of(range(3, 4), step=3))
