"""Packing whole documents side by side."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from finetune.packing import pack_documents
from pretrain.model.places import UNFILLED_GROUP

DOCUMENTS = st.lists(st.lists(st.integers(1, 60_000), min_size=1, max_size=9), min_size=1, max_size=8)


@given(DOCUMENTS, st.integers(1, 4), st.integers(1, 5))
def test_every_document_lies_whole_in_one_lane(
    documents: list[list[int]], num_lanes: int, segment: int
) -> None:
    arrays = [np.array(document, dtype=np.uint16) for document in documents]
    lanes = pack_documents(arrays, num_lanes)
    for number, (place, document) in enumerate(zip(lanes.places, documents, strict=True)):
        part = slice(place.start, place.start + place.num_tokens)
        assert lanes.tokens_BT[place.lane, part].tolist() == document
        assert lanes.group_BT[place.lane, part].tolist() == [number] * len(document)
    assert (lanes.group_BT != UNFILLED_GROUP).sum() == sum(map(len, documents))

    segments = [lanes.segment(number, segment) for number in range(lanes.num_segments(segment))]
    assert {part.shape for pair in segments for part in pair} == {(num_lanes, segment)}
    length = lanes.tokens_BT.shape[1]
    tokens_BT, group_BT = (torch.cat(parts, dim=1) for parts in zip(*segments, strict=True))
    assert torch.equal(tokens_BT[:, :length], lanes.tokens_BT)
    assert torch.equal(group_BT[:, :length], lanes.group_BT)
    assert (group_BT[:, length:] == UNFILLED_GROUP).all()


def test_lanes_are_filled_evenly_in_document_order() -> None:
    lanes = pack_documents([np.arange(n) for n in (5, 2, 2, 4)], num_lanes=2)
    assert [(place.lane, place.start) for place in lanes.places] == [(0, 0), (1, 0), (1, 2), (1, 4)]
