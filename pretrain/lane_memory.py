"""The memory of a worker's lanes from step to step.

Shapes: B lanes, M memory, D model.
"""

import torch
from torch import Tensor

from pretrain.model.segment_memory import SegmentMemory, concatenate


class LaneMemory:
    """The memory that the next step reads; the parts that a step makes of it become the next one if it is applied."""

    def __init__(self, memory: SegmentMemory) -> None:
        """Begin with the memory of all lanes of a worker."""
        self.all = memory
        """The memory of all lanes; the tensors do not change once a step can read them."""
        self._next: list[SegmentMemory] = []

    def add(self, part: SegmentMemory) -> None:
        """Add the memory after the next lanes of the step in progress."""
        self._next.append(part)

    @torch.no_grad()
    def end_step(self, is_applied: Tensor) -> None:
        """Take the memory of all parts if `is_applied` (bool [], on the device), else keep the old one.

        The device chooses: the host may not know yet.
        """
        after, self._next = concatenate(self._next), []
        for new, old in zip(_tensors(after), _tensors(self.all), strict=True):
            torch.where(is_applied, new, old, out=new)
        self.all = after


def _tensors(memory: SegmentMemory) -> tuple[Tensor, ...]:
    return *memory.layers_BMD, memory.group_BM, memory.document_BM
