"""Fixed-shape batches: lanes' segments with their orders, on the device.

Shapes: B lanes, L segment, P predicted.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from data_prep.documents import SPECIAL_TOKENS
from pretrain.data.device_feed import Segments
from pretrain.data.lanes import LaneReader
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
    return ordered_batch(
        Segments.of(reader.batch(step, lanes), with_documents, mixture.device), mixture, seed
    )


def ordered_batch(segments: Segments, mixture: OrderMixture, seed: int) -> Batch:
    """Draw the orders of segments on the mixture's device, by (seed, cursor, lane)."""
    tokens_BL, read = segments.tokens_BL, segments.read
    orders = mixture.orders(tokens_BL, seed, read.cursor, read.lanes)
    content, targets = orders.layouts(segments.group_BL, segments.document_BL, mixture.extent)
    return Batch(tokens_BL, content, targets, orders.wanted(tokens_BL, _END_HOLE_ID))


def left_to_right_batch(
    reader: LaneReader, step: int, lanes: range, with_documents: bool, device: torch.device
) -> Batch:
    """Read the segments of `lanes` at `step` onto `device`; every token is predicted from those before it."""
    segments = Segments.of(reader.batch(step, lanes), with_documents, device)
    content = left_to_right(segments.group_BL, segments.document_BL)
    return Batch(segments.tokens_BL, content, content, segments.tokens_BL)
