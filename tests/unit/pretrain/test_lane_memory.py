"""The memory after a step is that of its segments, or the old one bit for bit where the step is not applied."""

import torch
from torch import Tensor

from pretrain.lane_memory import LaneMemory
from pretrain.model.segment_memory import SegmentMemory


def memory_of(first: int, lanes: int) -> SegmentMemory:
    """Two layers of 3 positions of 2 numbers, all different; some are not finite."""
    layer_BMD = torch.arange(first, first + lanes * 6, dtype=torch.float32).view(lanes, 3, 2)
    layer_BMD[0, 0, 0] = torch.nan
    group_BM = torch.arange(first, first + lanes * 3).view(lanes, 3)
    return SegmentMemory((layer_BMD, -layer_BMD), group_BM, group_BM + 7)


def tensors(memory: SegmentMemory) -> list[Tensor]:
    return [*memory.layers_BMD, memory.group_BM, memory.document_BM]


def same(memory: SegmentMemory, expected: list[Tensor]) -> bool:
    pairs = zip(tensors(memory), expected, strict=True)
    return all(torch.equal(one.nan_to_num(0.5), other.nan_to_num(0.5)) for one, other in pairs)


def test_an_applied_step_leaves_its_parts_one_after_the_other() -> None:
    memory = LaneMemory(memory_of(0, 3))
    parts = [memory_of(100, 1), memory_of(200, 2)]
    for part in parts:
        memory.add(part)
    memory.end_step(torch.tensor(True))
    expected = [torch.cat(pair) for pair in zip(*map(tensors, parts), strict=True)]
    assert same(memory.all, expected)


def test_a_step_that_is_not_applied_leaves_the_old_memory_and_the_next_one_its_own() -> None:
    memory = LaneMemory(memory_of(0, 3))
    before = memory.all
    for first in (100, 200):
        memory.add(memory_of(first, 3))
        memory.end_step(torch.tensor(False))
        assert same(memory.all, tensors(memory_of(0, 3)))
    memory.add(memory_of(300, 3))
    memory.end_step(torch.tensor(True))
    assert same(memory.all, tensors(memory_of(300, 3)))
    # A checkpoint that is being written may still read the old tensors.
    assert same(before, tensors(memory_of(0, 3)))
