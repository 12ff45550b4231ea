"""Two to four holes in a segment, filled one after the other in random order, each left to right.

A hole is filled given the text around all of them and the holes that were filled before it. As with one hole
(`infill.py`), the length of a hole may be unknown: then a gap of positions follows it and its end is predicted; and the
predictions that holes do not use are those of the segment's last tokens, left to right. Of these tokens as many come
without a prediction as there are ends of holes.

Shapes: B lanes, L segment, P predicted, H holes of the lane with the most, in the order of the text.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pretrain.orders.config import MIN_HOLES, ObjectiveConfig, most_holes
from pretrain.orders.draws import LaneDraws, choice_bounds
from pretrain.orders.infill import hole_weights
from pretrain.orders.order import Orders


@dataclass(frozen=True)
class _Holes:
    """Where holes begin, how many tokens and predictions they have, how many predictions come before theirs, and by how
    many positions the text after them is moved, int64 [B, H]; holes that a lane does not have are empty.
    """

    start_BH: Tensor
    size_BH: Tensor
    num_predictions_BH: Tensor
    first_BH: Tensor
    gap_BH: Tensor


class SeveralHolesOrders:
    """Makes orders with several holes."""

    def __init__(self, config: ObjectiveConfig, segment_tokens: int, device: torch.device) -> None:
        self._segment_tokens, self._num_targets = segment_tokens, config.num_targets(segment_tokens)
        self._max_gap_tokens = config.max_gap_tokens
        self._most_holes = most_holes(segment_tokens, self._num_targets)
        known_share = config.known_length_share if config.hides_lengths(segment_tokens) else 1.0
        self._kind_bounds = choice_bounds([known_share, 1.0 - known_share], device)
        self._size_bounds = {
            count: choice_bounds(hole_weights(self._num_targets // count - 1), device)
            for count in range(MIN_HOLES, self._most_holes + 1)
        }
        self.num_draws = {
            "holes": 1,
            "holes length unknown": self._most_holes,
            "holes tokens": self._most_holes,
            "holes gap": self._most_holes,
            "holes order": self._most_holes,
            "holes start": segment_tokens - self._num_targets + 1,
        }
        """The random numbers needed per lane."""

    def orders(self, draws: LaneDraws) -> Orders:
        """Draw the number of holes, their sizes by `hole_weights`, their places, gaps and order uniformly."""
        length, num_targets = self._segment_tokens, self._num_targets
        holes = self._holes(draws)
        index_L1 = torch.arange(length, device=draws.device)[:, None]
        offset_BLH = index_L1 - holes.start_BH[:, None]
        in_hole_BLH = (offset_BLH >= 0) & (offset_BLH < holes.size_BH[:, None])
        is_after_BLH = offset_BLH >= holes.size_BH[:, None]
        position_BL = index_L1[:, 0] + (is_after_BLH * holes.gap_BH[:, None]).sum(dim=2)
        hole_rank_BL = (in_hole_BLH * (holes.first_BH[:, None] + offset_BLH + 1)).sum(dim=2)
        tail_BL = index_L1[:, 0] - (length - num_targets) - holes.size_BH.sum(dim=1, keepdim=True)
        tail_rank_BL = holes.num_predictions_BH.sum(dim=1, keepdim=True) + tail_BL + 1
        rank_BL = torch.where(tail_BL >= 0, tail_rank_BL, 0)
        rank_BL = torch.where(in_hole_BLH.any(dim=2), hole_rank_BL, rank_BL)

        number_P1 = torch.arange(num_targets, device=draws.device)[:, None]
        offset_BPH = number_P1 - holes.first_BH[:, None]
        is_of_hole_BPH = (offset_BPH >= 0) & (offset_BPH < holes.num_predictions_BH[:, None])
        ends_hole_BPH = is_of_hole_BPH & (offset_BPH == holes.size_BH[:, None])
        of_hole_BPH = holes.start_BH[:, None] + offset_BPH - ends_hole_BPH.long()
        target_BP = torch.where(
            is_of_hole_BPH.any(dim=2),
            (is_of_hole_BPH * of_hole_BPH).sum(dim=2),
            length - num_targets + number_P1[:, 0],
        )
        return Orders(position_BL, rank_BL, target_BP, ends_hole_BPH.any(dim=2))

    def _holes(self, draws: LaneDraws) -> _Holes:
        count_B1 = MIN_HOLES + draws.below("holes", self._most_holes - MIN_HOLES + 1)
        number_H = torch.arange(self._most_holes, device=draws.device)
        is_hole_BH = number_H < count_B1
        size_BH = torch.zeros_like(is_hole_BH, dtype=torch.int64)
        for count, bounds in self._size_bounds.items():
            size_BH = torch.where(count_B1 == count, 1 + draws.choice("holes tokens", bounds), size_BH)
        size_BH = size_BH * is_hole_BH
        unknown_BH = draws.choice("holes length unknown", self._kind_bounds) * is_hole_BH
        gap_BH = unknown_BH * (1 + draws.below("holes gap", self._max_gap_tokens))

        # Different places among the tokens of the context; holes that a lane does not have come after everything.
        place_BH = draws.sort_keys("holes start").argsort(dim=1)[:, : self._most_holes]
        place_BH = torch.where(is_hole_BH, place_BH, self._segment_tokens).sort(dim=1).values
        start_BH = place_BH + size_BH.cumsum(dim=1) - size_BH

        num_predictions_BH = size_BH + unknown_BH
        key_BH = draws.sort_keys("holes order")
        is_before_BHH = key_BH[:, None, :] < key_BH[:, :, None]
        first_BH = (is_before_BHH * num_predictions_BH[:, None, :]).sum(dim=2)
        return _Holes(start_BH, size_BH, num_predictions_BH, first_BH, gap_BH)
