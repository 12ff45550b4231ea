"""Fixed-shape batches: lanes' segments with their orders, on the device.

Shapes: B lanes, L segment, P predicted.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data_prep.documents import SPECIAL_TOKENS
from pretrain.data.lanes import LaneBatch, LaneReader
from pretrain.model.layout import TokenLayout
from pretrain.objective import left_to_right
from pretrain.orders.sampling import OrderMixture

_END_HOLE_ID = SPECIAL_TOKENS.index("<end_hole>")


@dataclass(frozen=True)
class Batch:
    """Tokens int64 [B, L] with their layout, the layout of the predictions [B, P] and the tokens to predict."""

    tokens_BL: Tensor
    content: TokenLayout
    targets: TokenLayout
    wanted_BP: Tensor

    def part(self, start: int, stop: int) -> "Batch":
        """Return the lanes [start, stop) of this batch."""
        return Batch(
            self.tokens_BL[start:stop],
            self.content.part(start, stop),
            self.targets.part(start, stop),
            self.wanted_BP[start:stop],
        )


def training_batch(
    reader: LaneReader, mixture: OrderMixture, seed: int, step: int, lanes: range, with_documents: bool
) -> Batch:
    """Read the segments of `lanes` at `step` and draw their orders by (seed, step, lane), on the mixture's device."""
    return ordered_batch(reader.batch(step, lanes), mixture, seed, with_documents)


def ordered_batch(read: LaneBatch, mixture: OrderMixture, seed: int, with_documents: bool) -> Batch:
    """Draw the orders of segments that were read, by (seed, cursor, lane), on the mixture's device."""
    tokens_BL, group_BL, document_BL = _segments(read, with_documents, mixture.device)
    orders = mixture.orders(tokens_BL, seed, read.cursor, read.lanes)
    content, targets = orders.layouts(group_BL, document_BL, mixture.extent)
    return Batch(tokens_BL, content, targets, orders.wanted(tokens_BL, _END_HOLE_ID))


def left_to_right_batch(
    reader: LaneReader, step: int, lanes: range, with_documents: bool, device: torch.device
) -> Batch:
    """Read the segments of `lanes` at `step` onto `device`; every token is predicted from those before it."""
    tokens_BL, group_BL, document_BL = _segments(reader.batch(step, lanes), with_documents, device)
    content = left_to_right(group_BL, document_BL)
    return Batch(tokens_BL, content, content, tokens_BL)


def _segments(
    read: LaneBatch, with_documents: bool, device: torch.device
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return tokens, groups and, with `with_documents`, documents [B, L] on `device`."""
    document_BL = _on_device(read.document_BL, device) if with_documents else None
    return _on_device(read.tokens_BL, device), _on_device(read.group_BL, device), document_BL


def _on_device(array_BL: NDArray[np.int64], device: torch.device) -> Tensor:
    tensor_BL = torch.from_numpy(array_BL)
    if device.type == "cuda":  # a copy from pageable memory would wait for all work of the GPU
        return tensor_BL.pin_memory().to(device, non_blocking=True)
    return tensor_BL.to(device)
