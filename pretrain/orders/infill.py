"""One hole in the middle, filled left to right given both sides, its length known or not.

The layout of a hole of m tokens from `start` on, of unknown length, with a gap of s positions:

    index      0 ...  start ... start+m-1             start+m ...     L-P+m    ... L-1
    position   0 ...  start ... start+m-1  [start+m]  start+m+s ...   L-P+m+s  ... L-1+s
    rank       0      1     ... m          [m+1]      0               m+1      ... P

In brackets: the prediction that the hole ends, where no token stands. P is fixed and m is not, so the segment's last
P - m tokens come after the hole in the order and are predicted left to right; the first of them gives its turn to the
hole's end. A hole of known length has neither gap nor end. The hole's predictions see L - P tokens with their
positions, which depend on `start` and m + s = T alone: of an unknown m they show that T - max_gap_tokens <= m < T.

Shapes: B lanes, L segment, P predicted.
"""

import torch
from torch import Tensor

from pretrain.orders.config import ObjectiveConfig
from pretrain.orders.draws import LaneDraws, choice_bounds
from pretrain.orders.order import Orders

INFILL_DRAWS = {"hole length unknown": 1, "hole tokens": 1, "hole start": 1, "hole gap": 1}
"""The random numbers needed per lane."""


class _HoleSizes:
    """Draws one hole per lane: whether its length is unknown, its tokens by `hole_weights`, and a uniform gap."""

    def __init__(
        self, config: ObjectiveConfig, segment_tokens: int, most_tokens: int, device: torch.device
    ) -> None:
        self._max_gap_tokens = config.max_gap_tokens
        known_share = config.known_length_share if config.hides_lengths(segment_tokens) else 1.0
        self._kind_bounds = choice_bounds([known_share, 1.0 - known_share], device)
        self._size_bounds = choice_bounds(hole_weights(max(1, most_tokens)), device)

    def draw(self, draws: LaneDraws) -> tuple[Tensor, Tensor, Tensor]:
        """Return 1 for a hole of unknown length and 0 for others, its tokens, and its gap (0 without), [B, 1] each."""
        unknown_B1 = draws.choice("hole length unknown", self._kind_bounds)
        size_B1 = 1 + draws.choice("hole tokens", self._size_bounds)
        return unknown_B1, size_B1, unknown_B1 * (1 + draws.below("hole gap", self._max_gap_tokens))


class InfillOrders:
    """Makes infilling orders."""

    num_draws = INFILL_DRAWS

    def __init__(self, config: ObjectiveConfig, segment_tokens: int, device: torch.device) -> None:
        self._segment_tokens, self._num_targets = segment_tokens, config.num_targets(segment_tokens)
        self._sizes = _HoleSizes(config, segment_tokens, self._num_targets - 1, device)

    def orders(self, draws: LaneDraws) -> Orders:
        """Draw one hole per lane, with a uniform start."""
        length, num_targets = self._segment_tokens, self._num_targets
        unknown_B1, size_B1, gap_B1 = self._sizes.draw(draws)
        start_B1 = draws.below("hole start", length - num_targets + 1)

        index_L = torch.arange(length, device=draws.device)
        is_after_BL = index_L >= start_B1 + size_B1
        in_hole_BL = (index_L >= start_B1) & ~is_after_BL
        in_tail_BL = index_L >= length - num_targets + size_B1
        tail_rank_L = index_L - (length - num_targets) + 1
        rank_BL = torch.where(in_hole_BL, index_L - start_B1 + 1, torch.where(in_tail_BL, tail_rank_L, 0))

        number_P = index_L[:num_targets]
        ends_hole_BP = (number_P == size_B1) & (unknown_B1 > 0)
        is_of_hole_BP = (number_P < size_B1) | ends_hole_BP
        of_hole_BP = start_B1 + torch.minimum(number_P, size_B1 - 1)
        target_BP = torch.where(is_of_hole_BP, of_hole_BP, length - num_targets + number_P)
        return Orders(index_L + gap_B1 * is_after_BL, rank_BL, target_BP, ends_hole_BP)


class FillInTheMiddleOrders:
    """Makes the orders of autoregressive infilling: the text before the hole, the text after it, then the hole.

    Each is predicted left to right, so that every token is predicted once (Bavarian et al. 2022, section 3, "PSM").
    Positions show where the hole is, which takes the place of sentinel tokens. The end of a hole of unknown length is
    predicted instead of the last token of the text around it.
    """

    num_draws = INFILL_DRAWS

    def __init__(self, config: ObjectiveConfig, segment_tokens: int, device: torch.device) -> None:
        self._segment_tokens = segment_tokens
        self._sizes = _HoleSizes(config, segment_tokens, segment_tokens - 1, device)

    def orders(self, draws: LaneDraws) -> Orders:
        """Draw one hole per lane, with a uniform start."""
        length = self._segment_tokens
        unknown_B1, size_B1, gap_B1 = self._sizes.draw(draws)
        start_B1 = draws.below("hole start", length - size_B1 + 1)

        index_L = torch.arange(length, device=draws.device)
        is_after_BL = index_L >= start_B1 + size_B1
        in_hole_BL = (index_L >= start_B1) & ~is_after_BL
        around_B1 = length - size_B1
        rank_BL = 1 + torch.where(in_hole_BL, around_B1 + index_L - start_B1, index_L - size_B1 * is_after_BL)

        # The number in the order of a hole of known length; the end of an unknown one is number `length`.
        number_BP = index_L + unknown_B1 * (index_L >= around_B1 - 1)
        of_hole_BP = start_B1 + number_BP - around_B1
        around_BP = number_BP + size_B1 * (number_BP >= start_B1)
        ends_hole_BP = number_BP == length
        target_BP = torch.where(number_BP >= around_B1, of_hole_BP, around_BP) - ends_hole_BP.long()
        return Orders(index_L + gap_B1 * is_after_BL, rank_BL, target_BP, ends_hole_BP)


def hole_weights(max_tokens: int) -> list[float]:
    """Return the probabilities of holes of 1, 2, ... max_tokens tokens: half proportional to 1/m, half uniform.

    Holes in practice are mostly the rest of an expression or line, so short ones must be frequent; 1/m alone would
    train long ones too rarely.
    """
    harmonic = sum(1.0 / size for size in range(1, max_tokens + 1))
    return [0.5 / (size * harmonic) + 0.5 / max_tokens for size in range(1, max_tokens + 1)]
