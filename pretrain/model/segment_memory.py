"""Segment memory: the inputs of every layer that a lane carries from one segment to the next (XLNet section 2.4).

Shapes: B lanes, M memory, L segment, D model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pretrain.model.layout import BEFORE_ALL_RANKS, UNFILLED_GROUP, TokenLayout


@dataclass(frozen=True)
class SegmentMemory:
    """Inputs of every layer at the last M positions, without gradients, and each position's group and document.

    `group_BM` is UNFILLED_GROUP at positions that are not filled yet; they are never attended to.
    """

    layers_BMD: tuple[Tensor, ...]
    group_BM: Tensor
    document_BM: Tensor

    @classmethod
    def empty(
        cls,
        num_layers: int,
        lanes: int,
        memory_tokens: int,
        model_dim: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> "SegmentMemory":
        """Make the memory before the first segment."""
        layer = torch.zeros(lanes, memory_tokens, model_dim, device=device, dtype=dtype)
        group = torch.full((lanes, memory_tokens), UNFILLED_GROUP, device=device, dtype=torch.int64)
        return cls(tuple(layer.clone() for _ in range(num_layers)), group, torch.zeros_like(group))

    @property
    def memory_tokens(self) -> int:
        """M."""
        return self.group_BM.shape[1]

    def layout(self, with_documents: bool) -> TokenLayout:
        """Return the memory's layout: positions -M..-1, before every rank."""
        position_M = torch.arange(-self.memory_tokens, 0, device=self.group_BM.device)
        return TokenLayout(
            position_M.expand_as(self.group_BM),
            torch.full_like(self.group_BM, BEFORE_ALL_RANKS),
            self.group_BM,
            self.document_BM if with_documents else None,
            extent=0,
        )

    def lanes(self, first: int, last: int) -> "SegmentMemory":
        """Return the memory of lanes [first, last)."""
        return SegmentMemory(
            tuple(layer[first:last] for layer in self.layers_BMD),
            self.group_BM[first:last],
            self.document_BM[first:last],
        )

    def to(self, device: torch.device) -> "SegmentMemory":
        """Return the memory on `device`."""
        return SegmentMemory(
            tuple(layer.to(device) for layer in self.layers_BMD),
            self.group_BM.to(device),
            self.document_BM.to(device),
        )

    def without_past(self) -> "SegmentMemory":
        """Return memory of M = 0 positions for the same lanes and layers."""
        return SegmentMemory(
            tuple(layer[:, :0] for layer in self.layers_BMD), self.group_BM[:, :0], self.document_BM[:, :0]
        )

    def advanced(self, inputs_BLD: Sequence[Tensor], content: TokenLayout) -> "SegmentMemory":
        """Return the memory after a segment: the last M positions of [memory; segment] of every layer's input."""
        if self.memory_tokens == 0:
            return self
        document_BL = content.document_BX
        if document_BL is None:
            document_BL = torch.zeros_like(content.group_BX)
        return SegmentMemory(
            tuple(_last(old, new.detach()) for old, new in zip(self.layers_BMD, inputs_BLD, strict=True)),
            _last(self.group_BM, content.group_BX),
            _last(self.document_BM, document_BL),
        )


def _last(old_BM: Tensor, new_BL: Tensor) -> Tensor:
    """Return the last M rows of [old; new], in the type of the old, as a new tensor."""
    memory_tokens = old_BM.shape[1]
    kept_BL = new_BL[:, -memory_tokens:]
    return torch.cat([old_BM[:, kept_BL.shape[1] :], kept_BL.to(old_BM.dtype)], dim=1)


def concatenate(parts: Sequence[SegmentMemory]) -> SegmentMemory:
    """Return the memories of consecutive lanes as one."""
    layers = tuple(
        torch.cat(layer, dim=0) for layer in zip(*(part.layers_BMD for part in parts), strict=True)
    )
    return SegmentMemory(
        layers,
        torch.cat([part.group_BM for part in parts], dim=0),
        torch.cat([part.document_BM for part in parts], dim=0),
    )
