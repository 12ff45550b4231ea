"""What a test lets go wrong inside a training process: a loss that is not finite, one that jumps, a worker that hangs
or is slow.

The loss of `pretrain.step` is wrapped (a slow worker's layers are), so everything around it is the real thing. Which
data steps it happens at is told by the loop's own `cursor`, kept by wrapping the feed.
"""

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pretrain import step as step_module
from pretrain.data.feed import LaneFeed
from pretrain.data.window import LaneBatch
from pretrain.model.block import Block


@dataclass(frozen=True)
class Antics:
    """`kind` is "nan", "jump" or "hang", or "slow" at all times; of worker `rank`, or of all where it is None."""

    kind: str
    cursors: tuple[int, ...] = ()
    rank: int | None = None


def perform(antics: Antics, rank: int) -> None:
    """From now on in this process."""
    if antics.rank not in (None, rank):
        return
    if antics.kind == "slow":
        _slow_down()
        return
    cursor = _followed_cursor()
    real_loss = step_module.prediction_loss

    def loss(logits_BPV: Tensor, wanted_BP: Tensor) -> Tensor:
        value = real_loss(logits_BPV, wanted_BP)
        if cursor[0] not in antics.cursors:
            return value
        if antics.kind == "hang":
            time.sleep(3600)
        # The gradient of a jump stays what it was: only what the loop sees is high.
        return value * torch.nan if antics.kind == "nan" else value + value.detach() * 9.0

    step_module.prediction_loss = loss


def _slow_down() -> None:
    real_forward = Block.forward

    def forward(block: Block, *given: Any) -> tuple[Tensor, Tensor]:
        time.sleep(0.05)
        return real_forward(block, *given)

    patched: Any = Block
    patched.forward = forward


def _followed_cursor() -> list[int]:
    """One number: the data step that the worker is at."""
    cursor = [-1]
    real_take = LaneFeed.take

    def take(feed: LaneFeed, wanted: int) -> LaneBatch:
        cursor[0] = wanted
        return real_take(feed, wanted)

    patched: Any = LaneFeed
    patched.take = take
    return cursor
