"""Copying the next step's segments ahead changes neither what a step reads nor which step fails."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from cluster.errors import UserError
from pretrain.data.device_feed import DeviceFeed
from pretrain.data.lanes import LaneBatch

CPU = torch.device("cpu")
WAIT_S = 0.25


class Feed:
    """A feed whose tokens are the cursor; some cursors cannot be read."""

    def __init__(self, damaged: tuple[int, ...] = ()) -> None:
        self.damaged = damaged
        self.taken: list[int] = []

    def take(self, cursor: int) -> LaneBatch:
        self.taken.append(cursor)
        if cursor in self.damaged:
            raise UserError(f"block of {cursor}")
        tokens_BL = np.full((2, 3), cursor)
        return LaneBatch(cursor, range(2), tokens_BL, tokens_BL + 1, tokens_BL + 2, (cursor, 0), WAIT_S)


def feed_over(feed: Feed, copies_ahead: bool, with_documents: bool = True) -> DeviceFeed:
    read: Any = feed
    return DeviceFeed(read, CPU, with_documents, copies_ahead)


def check(device_feed: DeviceFeed, cursor: int) -> float:
    """Take a cursor's segments and return how long that waited."""
    segments, waited_s = device_feed.take(cursor)
    assert segments.read.digest == cursor
    assert segments.document_BL is not None
    for added, tensor_BL in enumerate([segments.tokens_BL, segments.group_BL, segments.document_BL]):
        assert tensor_BL.tolist() == [[cursor + added] * 3] * 2
    return waited_s


def test_what_was_prepared_is_read_once_and_its_wait_counted_once() -> None:
    feed = Feed()
    device_feed = feed_over(feed, copies_ahead=True)
    assert check(device_feed, 0) == WAIT_S
    assert device_feed.prepare(1) == WAIT_S
    assert check(device_feed, 1) == 0.0
    assert feed.taken == [0, 1]


def test_another_cursor_than_the_prepared_one_is_read_itself() -> None:
    feed = Feed()
    device_feed = feed_over(feed, copies_ahead=True)
    device_feed.prepare(5)
    assert check(device_feed, 2) == WAIT_S
    assert check(device_feed, 5) == WAIT_S
    assert feed.taken == [5, 2, 5]


def test_what_cannot_be_read_fails_the_step_that_reads_it() -> None:
    device_feed = feed_over(Feed(damaged=(3,)), copies_ahead=True)
    assert device_feed.prepare(3) == 0.0
    with pytest.raises(UserError, match="block of 3"):
        device_feed.take(3)
    assert check(device_feed, 4) == WAIT_S


def test_on_a_cpu_nothing_is_read_ahead_of_its_step() -> None:
    feed = Feed()
    read: Any = feed
    device_feed = DeviceFeed(read, CPU, with_documents=True)
    assert device_feed.prepare(0) == 0.0
    assert feed.taken == []


def test_documents_are_left_out_where_no_encoding_uses_them() -> None:
    segments, _ = feed_over(Feed(), copies_ahead=False, with_documents=False).take(0)
    assert segments.document_BL is None
    assert len(segments.tensors()) == 2
    assert len(replace(segments, document_BL=segments.group_BL).tensors()) == 3
