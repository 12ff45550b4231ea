"""Faults that tests inject into a training process: a loss that is not finite, one that jumps, a worker that hangs or
is slow, an end that takes long.

`Pretrainer.loss` is wrapped (for a slow worker its layers are); all other code is the real
one. The data step of a fault is the loop's own `cursor`, which is followed by wrapping the feed.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.data.lanes import LaneBatch, LaneReader
from pretrain.data.prefetch import LaneFeed
from pretrain.evaluation import scoring
from pretrain.model.block import Block
from pretrain.pretrainer import Pretrainer


@dataclass(frozen=True)
class Fault:
    """A fault of worker `rank`, or of all if it is None.

    `kind` is "nan", "jump" or "hang" at the `cursors`, or "slow" or "slow_end" (evaluation and n-gram counts) always.
    """

    kind: str
    cursors: tuple[int, ...] = ()
    rank: int | None = None


def inject(fault: Fault, rank: int) -> None:
    """Inject the fault into this process from now on."""
    if fault.rank not in (None, rank):
        return
    if fault.kind == "slow":
        _slow_down()
        return
    if fault.kind == "slow_end":
        _slow_end_down()
        return
    cursor = _followed_cursor()
    real_loss = Pretrainer.loss

    def loss(trainer: Pretrainer, micro_batch: Any) -> Tensor:
        value = real_loss(trainer, micro_batch)
        if cursor[0] not in fault.cursors:
            return value
        if fault.kind == "hang":
            time.sleep(3600)
        # The gradient of a jump does not change: only the loss that the loop sees is high.
        return value * torch.nan if fault.kind == "nan" else value + value.detach() * 9.0

    patched: Any = Pretrainer
    patched.loss = loss


def _slow_down() -> None:
    real_forward = Block.forward

    def forward(block: Block, *given: Any) -> tuple[Tensor, Tensor]:
        time.sleep(0.05)
        return real_forward(block, *given)

    patched: Any = Block
    patched.forward = forward


def _slow_end_down() -> None:
    real_nats, real_tokens = scoring.token_nats, LaneReader.lane_tokens

    def token_nats(logits_BPV: Tensor, wanted_BP: Tensor) -> Tensor:
        time.sleep(0.7)
        return real_nats(logits_BPV, wanted_BP)

    def lane_tokens(reader: LaneReader, lane: int, num_steps: int) -> NDArray[np.int64]:
        time.sleep(0.7)
        return real_tokens(reader, lane, num_steps)

    patched: Any = LaneReader
    scoring.token_nats, patched.lane_tokens = token_nats, lane_tokens


def _followed_cursor() -> list[int]:
    """Return a list with one number, which is updated: the worker's data step."""
    cursor = [-1]
    real_take = LaneFeed.take

    def take(feed: LaneFeed, wanted: int) -> LaneBatch:
        cursor[0] = wanted
        return real_take(feed, wanted)

    patched: Any = LaneFeed
    patched.take = take
    return cursor
