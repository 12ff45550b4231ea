"""The training step without DeepSpeed and process groups: what a machine that has torch alone can try on its GPU.

Segments are copied ahead, orders drawn, forward and backward pass made, the update decided on the device, the memory
carried and the figures sent to the host, by the same code as in training; float32, one worker.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.config import OptimizerConfig
from pretrain.data.device_feed import DeviceFeed
from pretrain.device_copies import PendingNumbers
from pretrain.engine.device_update import DeviceUpdate
from pretrain.engine.optimizer import adamw, set_learning_rate
from pretrain.lane_memory import LaneMemory
from pretrain.model.config import ModelConfig
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.orders.config import ObjectiveConfig
from pretrain.orders.sampling import OrderMixture
from pretrain.orders.words import WordPieces
from pretrain.randomness import seed_dropout

VOCABULARY, LANES, SEGMENT = 61, 4, 64
END_HOLE_ID, RATE, SEED, CLIP_NORM = 7, 1e-2, 3, 0.5


@dataclass(frozen=True)
class Read:
    """Segments as `LaneFeed` gives them."""

    cursor: int
    lanes: range
    tokens_BL: NDArray[np.int64]
    group_BL: NDArray[np.int64]
    document_BL: NDArray[np.int64]
    wait_s: float = 0.0


class Feed:
    """Makes up the segments of a cursor."""

    def take(self, cursor: int) -> Read:
        draw = np.random.default_rng(cursor)
        tokens_BL = draw.integers(0, VOCABULARY, (LANES, SEGMENT))
        group_BL = np.cumsum(draw.random((LANES, SEGMENT)) < 0.05, axis=1)
        return Read(cursor, range(LANES), tokens_BL, group_BL, group_BL)


class PlainEngine:
    """What `DeviceUpdate` uses of DeepSpeed's engine, with torch's optimizer itself."""

    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self.optimizer, self.device = optimizer, device

    def step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


class TorchStep:
    """A small model and the state of its training on a device."""

    def __init__(self, device: torch.device, **model: Any) -> None:
        torch.manual_seed(0)
        shape = ModelConfig(
            num_layers=2, model_dim=32, num_heads=2, head_dim=16, ffn_dim=64, memory_tokens=48, **model
        )
        self.model = TwoStreamTransformer(shape, VOCABULARY).to(device)
        self.optimizer = adamw(self.model, OptimizerConfig(), fused=True)
        engine = PlainEngine(self.optimizer, device)
        self.update = DeviceUpdate(engine, list(self.model.parameters()), CLIP_NORM)
        words = WordPieces(*(torch.arange(VOCABULARY, device=device) % 3 > 0).expand(2, -1))
        self.mixture = OrderMixture(ObjectiveConfig(), SEGMENT, words, device)
        feed: Any = Feed()
        self.feed = DeviceFeed(feed, device, with_documents=shape.segment_encodings, copies_ahead=True)
        self.memory = LaneMemory(self.model.empty_memory(LANES))

    def make(self, cursor: int, spoil: str = "") -> PendingNumbers:
        """Launch the step at `cursor` and prepare the next one; `spoil` the "loss" or the "gradient".

        The numbers are the loss, the gradient's norm and whether the step is applied.
        """
        segments, _ = self.feed.take(cursor)
        orders = self.mixture.orders(segments.tokens_BL, SEED, cursor, range(LANES))
        content, targets = orders.layouts(segments.group_BL, segments.document_BL, self.mixture.extent)
        wanted_BP = orders.wanted(segments.tokens_BL, END_HOLE_ID)
        seed_dropout(SEED, cursor, 0)
        output = self.model(segments.tokens_BL, content, targets, self.memory.all, wanted_BP)
        loss = output.loss
        if spoil == "gradient":
            loss = loss + (loss * 0).sqrt()  # 0, whose gradient is not finite
        loss.backward()
        self.memory.add(output.memory)
        mean = loss.detach() + (torch.inf if spoil == "loss" else 0.0)
        set_learning_rate(self.optimizer.param_groups, RATE)
        norm, is_applied = self.update.make(torch.isfinite(mean))
        self.memory.end_step(is_applied)
        numbers = PendingNumbers(torch.stack([mean, norm, is_applied.float()]))
        self.feed.prepare(cursor + 1)
        return numbers

    def state(self) -> list[Tensor]:
        """Copies of weights, moments, Adam's step counts and memory, in CPU memory."""
        weights = list(self.model.parameters())
        moments = [value for one in self.optimizer.state.values() for value in one.values()]
        memory = self.memory.all
        kept = [*weights, *moments, *memory.layers_BMD, memory.group_BM, memory.document_BM]
        return [tensor.detach().cpu().clone() for tensor in kept]


def equal(state: list[Tensor], other: list[Tensor]) -> bool:
    """Whether two states are the same bit for bit."""
    return all(torch.equal(one, two) for one, two in zip(state, other, strict=True))
