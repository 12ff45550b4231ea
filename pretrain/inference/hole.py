"""Text with a hole that is written into: prefix, place of the hole, suffix.

The place of a hole of known length is as long as the hole. For unknown length it is longer (pretraining leaves 1 to
32 positions more), so that nothing tells the model the length but what it writes before it ends the hole.

A text longer than a segment is seen as in training: what fits of both sides, the prefix before that through the
model's memory; what comes later is out of sight.

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


class Hole:
    """`Written` for the hole of one text, with `lanes_each` lanes in a row for every length in `place_tokens`.

    Raises UserError when the longest place does not fit a segment, or the text a model with absolute positions.
    """

    def __init__(
        self, decoder: Decoder, sides: Sides, place_tokens: Sequence[int], lanes_each: int = 1
    ) -> None:
        longest, segment_tokens = max(place_tokens), decoder.segment_tokens
        check_place(decoder, longest)
        check_positions(decoder, len(sides.prefix) + longest + len(sides.suffix))
        shown = _in_sight(sides, longest, segment_tokens)
        history = len(sides.prefix) - len(shown.prefix)
        num_columns = len(shown.prefix) + longest + len(shown.suffix)
        if history:
            num_columns = max(num_columns + decoder.memory_tokens, decoder.memory_tokens + segment_tokens)
        lanes, device = len(place_tokens), decoder.model.device
        check_room(decoder, lanes * lanes_each, num_columns)
        self.session = DecodingSession(decoder, lanes, num_columns)
        context = _laid_out(sides.prefix, shown.suffix, place_tokens, device)
        read_history(self.session, decoder, context.part(0, history))
        self.first_column = self.session.num_columns + len(shown.prefix)
        self.session.encode(context.part(history, context.num_columns))
        if lanes_each > 1:
            self.session.repeat_lanes(lanes_each)
        self._column = self.first_column

    def first(self) -> Tensor:
        """Scores [B, V] of the hole's first token."""
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


def _in_sight(sides: Sides, place_tokens: int, segment_tokens: int) -> Sides:
    """What a segment holds of the sides: half of what is left for each, more where the other needs less."""
    left = segment_tokens - place_tokens
    suffix = sides.suffix[: max(left // 2, left - len(sides.prefix))]
    room = left - len(suffix)
    return Sides(sides.prefix[max(0, len(sides.prefix) - room) :], suffix)


def _laid_out(
    prefix: NDArray[np.int64], suffix: NDArray[np.int64], place_tokens: Sequence[int], device: torch.device
) -> Context:
    """Prefix, place and suffix of every lane; the first token of the prefix belongs to the document before."""
    start, length = len(prefix), len(suffix)
    shape = (len(place_tokens), start + max(place_tokens) + length)
    tokens_BT, given_BT = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.bool)
    tokens_BT[:, :start] = torch.from_numpy(prefix)
    given_BT[:, :start] = True
    for lane, place in enumerate(place_tokens):
        after = slice(start + place, start + place + length)
        tokens_BT[lane, after] = torch.from_numpy(suffix)
        given_BT[lane, after] = True
    before_BT = torch.zeros_like(given_BT)
    before_BT[:, : min(1, start)] = True
    return Context(tokens_BT.to(device), given_BT.to(device), before_BT.to(device))
