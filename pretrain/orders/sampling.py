"""The mixture of orders: each lane of each step draws one of the kinds.

Shapes: B lanes, L segment, P predicted.
"""

import torch
from torch import Tensor

from pretrain.orders.config import ObjectiveConfig
from pretrain.orders.draws import DrawTable, LaneDraws, choice_bounds
from pretrain.orders.infill import FillInTheMiddleOrders, InfillOrders
from pretrain.orders.order import Orders
from pretrain.orders.several_holes import SeveralHolesOrders
from pretrain.orders.spans import SpanOrders
from pretrain.orders.words import WordPieces

LEFT_TO_RIGHT_DRAWS = {"cut": 1}
"""The random numbers needed per lane."""
_WITH_HOLES: dict[str, type[InfillOrders | SeveralHolesOrders | FillInTheMiddleOrders]] = {
    "infill": InfillOrders,
    "holes": SeveralHolesOrders,
    "fill_in_the_middle": FillInTheMiddleOrders,
}


def left_to_right_orders(segment_tokens: int, num_targets: int, draws: LaneDraws) -> Orders:
    """Return orders with the tokens before a cut as context and the next P tokens predicted left to right.

    Every token after these comes later in the order than the one before it, so that one P fits every cut.
    """
    cut_B1 = draws.below("cut", segment_tokens - num_targets + 1)
    index_L = torch.arange(segment_tokens, device=draws.device)
    return Orders.of_tokens(
        rank_BL=(index_L - cut_B1 + 1).clamp(min=0), target_BP=cut_B1 + index_L[:num_targets]
    )


class OrderMixture:
    """Makes the orders of any lanes at any step, a pure function of (seed, step, lane) and the lane's tokens.

    All work is on `device`, for all lanes at once: no loop over lanes or tokens, no shape that depends on the
    draws, no wait for the device.
    """

    def __init__(
        self, config: ObjectiveConfig, segment_tokens: int, words: WordPieces, device: torch.device
    ) -> None:
        self.device = device
        self.num_targets = config.num_targets(segment_tokens)
        self.extent = config.extent(segment_tokens)
        """The bound that positions are below."""
        self._segment_tokens = segment_tokens
        self._counts_words = config.span_unit == "word"
        self._words = words
        self._spans = SpanOrders(config, segment_tokens, device)
        weights = {kind: weight for kind, weight in config.weights.items() if weight > 0}
        self._with_holes = {
            kind: maker(config, segment_tokens, device)
            for kind, maker in _WITH_HOLES.items()
            if kind in weights
        }
        num_draws = {"order": 1} | LEFT_TO_RIGHT_DRAWS | self._spans.num_draws
        for maker in self._with_holes.values():
            num_draws |= maker.num_draws
        self._draws = DrawTable(num_draws, device)
        self._kinds = list(weights)
        self._kind_bounds = choice_bounds(list(weights.values()), device)

    def orders(self, tokens_BL: Tensor, seed: int, step: int, lanes: range) -> Orders:
        """Draw the orders of `lanes` at `step`, whose segments are int64 [B, L] on the mixture's device."""
        draws = self._draws.draws(seed, step, lanes)
        kind_B = draws.choice("order", self._kind_bounds)[:, 0]
        mixed = self._of_kind(self._kinds[0], tokens_BL, draws)
        for number, kind in enumerate(self._kinds[1:], start=1):
            mixed = self._of_kind(kind, tokens_BL, draws).where(kind_B == number, mixed)
        return mixed

    def _of_kind(self, kind: str, tokens_BL: Tensor, draws: LaneDraws) -> Orders:
        """Make orders of one kind for all lanes: unused ones cost less than selecting lanes first."""
        if kind == "left_to_right":
            return left_to_right_orders(self._segment_tokens, self.num_targets, draws)
        if kind in self._with_holes:
            return self._with_holes[kind].orders(draws)
        begins_unit_BL = (
            self._words.begins_word(tokens_BL)
            if self._counts_words
            else torch.ones_like(tokens_BL, dtype=torch.bool)
        )
        return self._spans.orders(begins_unit_BL, draws)
