"""Random spans of words in random order: XLNet's targets (Yang et al. 2019, section 2.3 and appendix A.3).

The released code walks through the text: a span of n words, n with a probability proportional to 1/n, lies at a
uniform place in a stretch of 7n words, and the next stretch begins where this one ends. Here a stretch has n * L / P
words, whatever the share P / L is. Counted in words the walk does not depend on the text, so that a cumulative sum
makes it. (The released code counts sub-words where it means words; this one counts words.)

Shapes: B lanes, L segment, P predicted, S stretches.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pretrain.orders.config import ObjectiveConfig
from pretrain.orders.draws import LaneDraws, choice_bounds
from pretrain.orders.order import Orders

_AFTER_ALL_SPANS = 1 << 62
"""A summand for the sort keys of tokens outside spans, above all sort keys."""


@dataclass(frozen=True)
class Spans:
    """The number of each token's stretch, int64 [B, L], and whether it is in that stretch's span, bool [B, L]."""

    stretch_BL: Tensor
    in_span_BL: Tensor


class SpanOrders:
    """Makes orders of random spans."""

    def __init__(self, config: ObjectiveConfig, segment_tokens: int, device: torch.device) -> None:
        self._length, self._num_targets = segment_tokens, config.num_targets(segment_tokens)
        self._is_random_in_spans = config.order_in_spans == "random"
        sizes = range(1, config.max_span_words + 1)
        self._size_bounds = choice_bounds([1.0 / size for size in sizes], device)
        self._longest_stretch = -(-config.max_span_words * self._length // self._num_targets)
        words_to_cover = self._length + self._longest_stretch
        # k stretches have at least floor(k * L / P) words.
        num_stretches = -(-words_to_cover * self._num_targets // self._length) + 1
        self.num_draws = {
            "walk start": 1,
            "span words": num_stretches,
            "span place": num_stretches,
            "span": num_stretches,
            "token": self._length,
            "target": self._num_targets,
        }
        """The random numbers needed per lane."""

    def orders(self, begins_word_BL: Tensor, draws: LaneDraws) -> Orders:
        """Draw orders with exactly P targets: whole spans and one cut span, or all spans and random single tokens."""
        spans = self.spans(begins_word_BL, draws)
        span_key_BS = draws.sort_keys("span")
        token_key_BL = draws.sort_keys("token")
        order_key_BL = torch.where(spans.in_span_BL, span_key_BS.gather(1, spans.stretch_BL), token_key_BL)
        pick_key_BL = torch.where(spans.in_span_BL, order_key_BL, order_key_BL + _AFTER_ALL_SPANS)
        # Stable sorts keep the tokens of a span, whose keys are equal, from left to right.
        target_BP = pick_key_BL.argsort(dim=1, stable=True)[:, : self._num_targets]
        if self._is_random_in_spans:
            target_key_BP = draws.sort_keys("target")
        else:
            target_key_BP = order_key_BL.gather(1, target_BP)
        target_BP = target_BP.gather(1, target_key_BP.argsort(dim=1, stable=True))
        rank_P = torch.arange(1, self._num_targets + 1, device=draws.device)
        rank_BL = torch.zeros_like(token_key_BL).scatter(1, target_BP, rank_P.expand_as(target_BP))
        return Orders.of_tokens(rank_BL, target_BP)

    def spans(self, begins_word_BL: Tensor, draws: LaneDraws) -> Spans:
        """Draw the walk. It begins at random before the segment: every word is equally likely to be in a span."""
        size_BS = 1 + draws.choice("span words", self._size_bounds)
        stretch_end_BS = size_BS.cumsum(dim=1) * self._length // self._num_targets
        stretch_start_BS = functional.pad(stretch_end_BS[:, :-1], (1, 0))
        num_places_BS = stretch_end_BS - stretch_start_BS - size_BS + 1
        span_start_BS = stretch_start_BS + draws.below("span place", num_places_BS)

        word_BL = begins_word_BL.cumsum(dim=1) - 1 + draws.below("walk start", self._longest_stretch)
        stretch_BL = torch.searchsorted(stretch_end_BS, word_BL, right=True)
        span_start_BL = span_start_BS.gather(1, stretch_BL)
        in_span_BL = (word_BL >= span_start_BL) & (word_BL < span_start_BL + size_BS.gather(1, stretch_BL))
        return Spans(stretch_BL, in_span_BL)
