"""Texts with a hole that is written into: prefix, place of the hole, suffix.

The place of a hole of known length is as long as the hole. For unknown length it is longer (pretraining leaves 1 to
32 positions more), so that nothing tells the model the length but what it writes before it ends the hole.

A text longer than a segment is seen as in training: what fits of both sides, the prefix before that through the
model's memory; what comes later is out of sight.

Texts lie side by side with their holes beginning in the same column.

Shapes: B lanes, T tokens, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cluster.errors import UserError
from pretrain.inference.context import Context
from pretrain.inference.continuation import read_history
from pretrain.inference.session import Decoder, DecodingSession, check_room
from pretrain.inference.written import check_positions


@dataclass(frozen=True)
class Sides:
    """The tokens before and after a hole."""

    prefix: NDArray[np.int64]
    suffix: NDArray[np.int64]

    def context(self) -> NDArray[np.int64]:
        """One array that tells these sides from all others."""
        return np.concatenate([self.prefix, [-1], self.suffix])


@dataclass(frozen=True)
class Hole:
    """The hole of a text, laid out once with each length of place."""

    sides: Sides
    place_tokens: Sequence[int]

    def in_sight(self, segment_tokens: int) -> Sides:
        """What a segment holds of the sides: half of what is left for each, more where the other needs less."""
        left = segment_tokens - max(self.place_tokens)
        suffix = self.sides.suffix[: max(left // 2, left - len(self.sides.prefix))]
        room = left - len(suffix)
        return Sides(self.sides.prefix[max(0, len(self.sides.prefix) - room) :], suffix)


def side_by_side(decoder: Decoder, holes: Sequence[Hole]) -> list[list[int]]:
    """The numbers of the holes that one `Holes` can have: the last segments of their texts begin in one column."""
    groups: dict[int | None, list[int]] = {}
    for number, hole in enumerate(holes):
        num_shown = len(hole.in_sight(decoder.segment_tokens).prefix)
        fits = num_shown == len(hole.sides.prefix)
        groups.setdefault(None if fits else num_shown, []).append(number)
    return list(groups.values())


class Holes:
    """`Written` for holes that `side_by_side` puts together: `lanes_each` lanes in a row for each of their layouts.

    Raises UserError when the longest place does not fit a segment, or a text the model's absolute positions.
    """

    def __init__(self, decoder: Decoder, holes: Sequence[Hole], lanes_each: int = 1) -> None:
        for hole in holes:
            sides, longest = hole.sides, max(hole.place_tokens)
            check_place(decoder, longest)
            check_positions(decoder, len(sides.prefix) + longest + len(sides.suffix))
        assert len(side_by_side(decoder, holes)) == 1
        shown = [hole.in_sight(decoder.segment_tokens) for hole in holes]
        layouts = [
            _Layout(hole.sides.prefix, place, one.suffix)
            for hole, one in zip(holes, shown, strict=True)
            for place in hole.place_tokens
        ]
        start = max(len(hole.sides.prefix) for hole in holes)
        history = start - max(len(one.prefix) for one in shown)
        num_columns = start + max(one.place_tokens + len(one.suffix) for one in layouts) - history
        if history:
            num_columns = decoder.memory_tokens + max(num_columns, decoder.segment_tokens)
        check_room(decoder, len(layouts) * lanes_each, num_columns)
        context, offset_B = _side_by_side(layouts, start, decoder.model.device)
        self.session = DecodingSession(decoder, len(layouts), num_columns, offset_B)
        read_history(self.session, decoder, context.part(0, history))
        self.first_column = self.session.num_columns + start - history
        self.session.encode(context.part(history, context.num_columns))
        if lanes_each > 1:
            self.session.repeat_lanes(lanes_each)
        self._column = self.first_column

    def first(self) -> Tensor:
        """Scores [B, V] of the holes' first tokens."""
        return self.session.predict(self._column)

    def following(self, token_B: Tensor) -> Tensor:
        """Scores [B, V] of the token after `token_B`, which is written."""
        self._column += 1
        return self.session.write_and_predict(token_B, self._column - 1)

    def reorder(self, lane_B: Tensor) -> None:
        """Let lane i go on from the tokens of lane `lane_B[i]`, whose place is as long."""
        self.session.select_lanes(lane_B, self.first_column)

    def retain(self, lane_X: Tensor) -> None:
        """Forget all lanes but these."""
        self.session.take_lanes(lane_X)


def check_place(decoder: Decoder, place_tokens: int) -> None:
    """Raise UserError for a place that leaves nothing of a segment for the text around it."""
    if place_tokens >= decoder.segment_tokens:
        raise UserError(
            f"a hole of {place_tokens} tokens does not fit the model's segments of {decoder.segment_tokens}: "
            "ask for fewer"
        )


@dataclass(frozen=True)
class _Layout:
    """A lane: a text, with a place of so many tokens left free in it."""

    prefix: NDArray[np.int64]
    place_tokens: int
    suffix: NDArray[np.int64]


def _side_by_side(layouts: Sequence[_Layout], start: int, device: torch.device) -> tuple[Context, Tensor]:
    """All places from column `start` on, and how many columns of each lane are before its text.

    The first token of a prefix belongs to the document before.
    """
    shape = (len(layouts), start + max(one.place_tokens + len(one.suffix) for one in layouts))
    tokens_BT, given_BT = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.bool)
    before_BT = torch.zeros_like(given_BT)
    for lane, one in enumerate(layouts):
        first, end = start - len(one.prefix), start + one.place_tokens
        before, after = slice(first, start), slice(end, end + len(one.suffix))
        tokens_BT[lane, before] = torch.from_numpy(one.prefix)
        tokens_BT[lane, after] = torch.from_numpy(one.suffix)
        given_BT[lane, before] = given_BT[lane, after] = True
        before_BT[lane, first : min(first + 1, start)] = True
    offset_B = torch.tensor([start - len(one.prefix) for one in layouts], device=device)
    return Context(tokens_BT.to(device), given_BT.to(device), before_BT.to(device)), offset_B
