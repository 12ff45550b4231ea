"""Whole documents packed side by side, so that the model's memory follows each of them.

Shapes: B lanes, T length of the longest lane, L segment.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pretrain.model.places import UNFILLED_GROUP


@dataclass(frozen=True)
class DocumentPlace:
    """Where a document lies: tokens [start, start + num_tokens) of its lane."""

    lane: int
    start: int
    num_tokens: int


@dataclass(frozen=True)
class PackedLanes:
    """Tokens and document groups [B, T], int64; a group is a document's number, UNFILLED_GROUP padding."""

    tokens_BT: Tensor
    group_BT: Tensor
    places: list[DocumentPlace]

    def num_segments(self, segment_tokens: int) -> int:
        """Segments of L tokens in a lane, the last one filled up with padding."""
        return -(-self.tokens_BT.shape[1] // segment_tokens)

    def segment(self, number: int, segment_tokens: int) -> tuple[Tensor, Tensor]:
        """Tokens and groups [B, L] of one segment."""
        part = slice(number * segment_tokens, (number + 1) * segment_tokens)
        tokens_BL, group_BL = self.tokens_BT[:, part], self.group_BT[:, part]
        missing = (0, segment_tokens - tokens_BL.shape[1])
        return (
            torch.nn.functional.pad(tokens_BL, missing),
            torch.nn.functional.pad(group_BL, missing, value=UNFILLED_GROUP),
        )


def pack_documents(documents: Sequence[npt.NDArray[np.integer]], num_lanes: int) -> PackedLanes:
    """Each document in turn behind the (first) shortest lane; lanes are padded to the longest."""
    length_B = [0] * num_lanes
    places = []
    for tokens in documents:
        lane = length_B.index(min(length_B))
        places.append(DocumentPlace(lane, length_B[lane], len(tokens)))
        length_B[lane] += len(tokens)
    tokens_BT = torch.zeros(num_lanes, max(length_B), dtype=torch.int64)
    group_BT = torch.full_like(tokens_BT, UNFILLED_GROUP)
    for number, (place, tokens) in enumerate(zip(places, documents, strict=True)):
        part = slice(place.start, place.start + place.num_tokens)
        tokens_BT[place.lane, part] = torch.from_numpy(tokens.astype(np.int64))
        group_BT[place.lane, part] = number
    return PackedLanes(tokens_BT, group_BT, places)
