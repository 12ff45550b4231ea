"""The conditions under which a text is scored: the order in which its tokens are predicted, with or without memory.

The orders do not depend on the run's objective and are drawn from a fixed seed, so that figures of any two runs with
the same corpus, lanes and segments can be compared:

- left to right: every token from those before it;
- any order: half of a segment's tokens, random spans of 1 to 5 words, in uniformly random order;
- infill: a hole of an eighth of the segment at a random place, left to right, given both sides.

Given tokens see each other in both directions, those of a causal model only the ones before them.

Shapes: B lanes, L segment, P predicted.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pretrain.data.batch import Batch
from pretrain.orders.config import ObjectiveConfig
from pretrain.orders.draws import DrawTable
from pretrain.orders.order import Orders
from pretrain.orders.sampling import OrderMixture
from pretrain.orders.words import WordPieces

OrderName = Literal["left_to_right", "any_order", "infill"]

_SEED = 0
_ANY_ORDER = ObjectiveConfig(target_share=0.5, spans=1.0, left_to_right=0.0, infill=0.0, max_span_words=5)
_SEGMENT_PER_HOLE = 8


@dataclass(frozen=True)
class Condition:
    """A condition for scoring a text; without memory every segment is read by itself."""

    order: OrderName
    with_memory: bool

    @property
    def name(self) -> str:
        """The name in figures and metrics."""
        return self.order if self.with_memory else f"{self.order}.without_memory"


HEADLINE = Condition("left_to_right", with_memory=True)
"""The condition of "validation bits per byte". A model without memory carries none."""


def conditions(by_order: bool, has_memory: bool) -> tuple[Condition, ...]:
    """Return all conditions that are scored, the headline first."""
    if not by_order:
        return (HEADLINE,)
    orders: tuple[OrderName, ...] = ("left_to_right", "any_order", "infill")
    with_memory = tuple(Condition(order, True) for order in orders)
    return with_memory + (tuple(Condition(order, False) for order in orders) if has_memory else ())


class ValidationOrders:
    """Reorders left-to-right batches: a pure function of (segment's number, lane) and the tokens."""

    def __init__(self, segment_tokens: int, words: WordPieces, device: torch.device) -> None:
        self._segment_tokens = segment_tokens
        self._any_order = OrderMixture(_ANY_ORDER, segment_tokens, words, device)
        self._hole_tokens = max(1, segment_tokens // _SEGMENT_PER_HOLE)
        self._hole_draws = DrawTable({"validation hole start": 1}, device)

    def batch(
        self, order: OrderName, plain: Batch, segment: int, lanes: range, *, is_causal: bool = False
    ) -> Batch:
        """Return the segments of `plain`, which are number `segment` of `lanes`, in another order."""
        if order == "left_to_right":
            return plain
        if order == "any_order":
            orders = self._any_order.orders(plain.tokens_BL, _SEED, segment, lanes)
        else:
            orders = self._holes(segment, lanes)
        if is_causal:
            orders = orders.causal()
        group_BL, document_BL = plain.content.group_BX, plain.content.document_BX
        content, targets = orders.layouts(group_BL, document_BL, self._segment_tokens)
        return Batch(plain.tokens_BL, content, targets, plain.tokens_BL.gather(1, orders.target_BP))

    def _holes(self, segment: int, lanes: range) -> Orders:
        draws = self._hole_draws.draws(_SEED, segment, lanes)
        start_B1: Tensor = draws.below("validation hole start", self._segment_tokens - self._hole_tokens + 1)
        index_L = torch.arange(self._segment_tokens, device=draws.device)
        in_hole_BL = (index_L >= start_B1) & (index_L < start_B1 + self._hole_tokens)
        rank_BL = (index_L - start_B1 + 1) * in_hole_BL
        return Orders.of_tokens(rank_BL, start_B1 + index_L[: self._hole_tokens])
