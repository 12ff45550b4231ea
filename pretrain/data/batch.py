"""Fixed-shape batches: lanes' segments with their orders, on the device.

Shapes: B lanes, L segment, P predicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data_prep.documents import SPECIAL_TOKENS
from pretrain.data.lanes import LaneReader
from pretrain.model.places import Places
from pretrain.objective import left_to_right
from pretrain.orders.mixture import OrderMixture

_END_HOLE_ID = SPECIAL_TOKENS.index("<end_hole>")


@dataclass(frozen=True)
class Batch:
    """Tokens int64 [B, L] and their places, the places to predict [B, P] and the tokens wanted there."""

    tokens_BL: Tensor
    content: Places
    targets: Places
    wanted_BP: Tensor


def training_batch(
    reader: LaneReader, mixture: OrderMixture, seed: int, step: int, lanes: range, with_documents: bool
) -> Batch:
    """The segments of `lanes` at `step`, in the orders that (seed, step, lane) give, on the mixture's device."""
    tokens_BL, group_BL, document_BL = _segments(reader, step, lanes, with_documents, mixture.device)
    orders = mixture.orders(tokens_BL, seed, step, lanes)
    content, targets = orders.places(group_BL, document_BL, mixture.extent)
    return Batch(tokens_BL, content, targets, orders.wanted(tokens_BL, _END_HOLE_ID))


def left_to_right_batch(
    reader: LaneReader, step: int, lanes: range, with_documents: bool, device: torch.device
) -> Batch:
    """The segments of `lanes` at `step` on `device`, every token predicted from those before it."""
    tokens_BL, group_BL, document_BL = _segments(reader, step, lanes, with_documents, device)
    content = left_to_right(group_BL, document_BL)
    return Batch(tokens_BL, content, content, tokens_BL)


def _segments(
    reader: LaneReader, step: int, lanes: range, with_documents: bool, device: torch.device
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Tokens, groups and, where wanted, documents [B, L]."""
    segments = [reader.segment(step, lane) for lane in lanes]
    document_BL = None
    if with_documents:
        document_BL = _stacked([segment.document_L for segment in segments], device)
    return (
        _stacked([segment.tokens_L for segment in segments], device),
        _stacked([segment.group_L for segment in segments], device),
        document_BL,
    )


def _stacked(rows: Sequence[NDArray[np.int64]], device: torch.device) -> Tensor:
    stacked = torch.from_numpy(np.stack(rows))
    if device.type == "cuda":  # a copy from ordinary memory would wait for all that the GPU has still to do
        return stacked.pin_memory().to(device, non_blocking=True)
    return stacked.to(device)
