"""Which tokens of a segment are predicted, and in which order (XLNet section 2.3; orders as rank vectors).

Shapes: B lanes, L segment, P predicted. An order is a rank per position; the context has rank 0, predicted
positions have ranks from 1 up in the order in which they are predicted.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from cluster.config import Config
from pretrain.randomness import keyed_generator

OrderName = Literal["spans", "left_to_right", "infill"]


class ObjectiveConfig(Config):
    """The mixture of orders; weights need not sum to one."""

    target_share: float = Field(default=0.5, gt=0.0, le=1.0)
    """P / L: share of a segment's tokens that are predicted; the rest is context."""
    spans: NonNegativeFloat = 1.0
    """Random spans in random order."""
    left_to_right: NonNegativeFloat = 1.0
    """Random cut, then left to right."""
    infill: NonNegativeFloat = 1.0
    """One span in the middle, left to right, given both sides."""
    max_span_tokens: PositiveInt = 5

    @model_validator(mode="after")
    def _some_order(self) -> "ObjectiveConfig":
        if self.spans + self.left_to_right + self.infill == 0:
            raise ValueError("one of spans, left_to_right, infill must be above 0")
        return self

    def num_targets(self, segment_tokens: int) -> int:
        """P for segments of L tokens, at least 1."""
        return max(1, round(self.target_share * segment_tokens))


@dataclass(frozen=True)
class Order:
    """One segment's order: int64 rank [L] and predicted positions [P], listed as they are predicted."""

    rank_L: NDArray[np.int64]
    target_P: NDArray[np.int64]


def spans_order(generator: np.random.Generator, length: int, num_targets: int, max_span_tokens: int) -> Order:
    """Spans of 1..max tokens (probability proportional to 1/n) in random order until P tokens are chosen.

    Inside a span tokens go left to right. The last span is cut to fit.
    """
    weights = 1.0 / np.arange(1, max_span_tokens + 1)
    span_tokens = generator.choice(np.arange(1, max_span_tokens + 1), size=length, p=weights / weights.sum())
    span_L = np.repeat(np.arange(length), span_tokens)[:length]
    shuffled_L = np.argsort(generator.permutation(length)[span_L], kind="stable")
    return _ranked(shuffled_L[:num_targets], length)


def left_to_right_order(generator: np.random.Generator, length: int, num_targets: int) -> Order:
    """A random cut: what lies before it is context, the next P tokens are predicted left to right.

    What follows the predicted tokens comes after them in the order, each token after the one before it.
    """
    cut = int(generator.integers(0, length - num_targets + 1))
    order = _ranked(np.arange(cut, cut + num_targets), length)
    order.rank_L[cut + num_targets :] = np.arange(num_targets + 1, length - cut + 1)
    return order


def infill_order(generator: np.random.Generator, length: int, num_targets: int) -> Order:
    """P tokens in one piece at a random place, left to right, given everything around them."""
    start = int(generator.integers(0, length - num_targets + 1))
    return _ranked(np.arange(start, start + num_targets), length)


def _ranked(target_P: NDArray[np.int64], length: int) -> Order:
    rank_L = np.zeros(length, dtype=np.int64)
    rank_L[target_P] = np.arange(1, len(target_P) + 1)
    return Order(rank_L, target_P)


def lane_order(config: ObjectiveConfig, seed: int, step: int, lane: int, length: int) -> Order:
    """The order of one lane's segment: a pure function of (seed, step, lane)."""
    generator = keyed_generator(seed, "order", step, lane)
    num_targets = config.num_targets(length)
    weights = np.array([config.spans, config.left_to_right, config.infill])
    kind = int(generator.choice(3, p=weights / weights.sum()))
    if kind == 0:
        return spans_order(generator, length, num_targets, config.max_span_tokens)
    if kind == 1:
        return left_to_right_order(generator, length, num_targets)
    return infill_order(generator, length, num_targets)
