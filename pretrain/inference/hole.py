"""Decoding of texts with a hole: prefix, room for the hole ("place"), suffix.

The place of a hole of known length is as long as the hole. For unknown length it is longer (pretraining leaves 1 to
32 more positions), so that the positions do not show the length and the model ends the hole itself.

A text longer than a segment is read as in training: the parts of both sides that fit, with the prefix before them in
the model's memory; tokens after them are not visible.

Texts are decoded side by side with their holes beginning in the same column, whatever is before and after them.

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
from pretrain.inference.decoder import Decoder, check_positions, check_room
from pretrain.inference.history import HistoryCache, read_from_start
from pretrain.inference.session import DecodingSession

EMPTY = -1
"""In place of a token: a column that stays empty, of another hole that is not filled yet."""


@dataclass(frozen=True)
class Sides:
    """The tokens before and after a hole, EMPTY where there is none.

    `history_tokens` of the prefix are read as the model's memory; None for as few as make the rest fit a segment.
    `before_T` has the document of each token of the prefix as in `Context`; None: the first token is of the document
    before the text.
    """

    prefix: NDArray[np.int64]
    suffix: NDArray[np.int64]
    history_tokens: int | None = None
    before_T: NDArray[np.int64] | None = None

    @property
    def own_prefix_tokens(self) -> int:
        """The number of tokens before the hole without those of earlier documents, but with the `<eod>` before it."""
        if self.before_T is None:
            return len(self.prefix)
        return min(len(self.prefix), 1 + int((self.before_T == 0).sum()))

    def before(self, first: int, end: int) -> NDArray[np.int64]:
        """Return the documents of tokens [first, end) of the prefix."""
        if self.before_T is not None:
            return self.before_T[first:end]
        before_T = np.zeros(end - first, dtype=np.int64)
        before_T[: max(0, 1 - first)] = 1
        return before_T

    def context(self) -> NDArray[np.int64]:
        """Return one array that is different for different sides."""
        return np.concatenate([self.prefix, [-1], self.suffix])


@dataclass(frozen=True)
class Hole:
    """The hole of a text, with one or more lengths of its place."""

    sides: Sides
    place_tokens: Sequence[int]

    def visible_sides(self, segment_tokens: int) -> Sides:
        """Return the parts of the sides that fit a segment: half of the rest for each, more if the other needs less."""
        if self.sides.history_tokens is not None:
            return Sides(self.sides.prefix[self.sides.history_tokens :], self.sides.suffix)
        left = segment_tokens - max(self.place_tokens)
        suffix = self.sides.suffix[: max(left // 2, left - self.sides.own_prefix_tokens)]
        room = left - len(suffix)
        return Sides(self.sides.prefix[max(0, len(self.sides.prefix) - room) :], suffix)


class Holes:
    """An `IncrementalDecoder` for the holes of any texts: `lanes_each` lanes in a row for each of their places.

    Every text is read by itself, without padding to the longest; its cache is then copied so that all holes begin in
    one column. Raises UserError when a place does not fit a segment, or a text the model's absolute positions.
    """

    def __init__(
        self,
        decoder: Decoder,
        holes: Sequence[Hole],
        lanes_each: int = 1,
        cache: HistoryCache | None = None,
    ) -> None:
        texts = [_Text(decoder, hole) for hole in holes]
        self.first_column = max(text.start for text in texts)
        shifts = [self.first_column - text.start for text in texts]
        num_columns = max(shift + text.end for text, shift in zip(texts, shifts, strict=True))
        num_layouts = sum(len(hole.place_tokens) for hole in holes)
        check_room(decoder, num_layouts * lanes_each, num_columns)
        self.session = DecodingSession(decoder, num_layouts, num_columns)
        if len(texts) == 1:
            texts[0].read(self.session, cache)
        else:
            lane = 0
            for text, shift in zip(texts, shifts, strict=True):
                lanes = len(text.hole.place_tokens)
                alone = DecodingSession(decoder, lanes, text.end)
                text.read(alone, cache)
                self.session.copy_from(alone, lane, shift)
                lane += lanes
        if lanes_each > 1:
            self.session.repeat_lanes(lanes_each)
        self.column = self.first_column
        """The column of the next token."""

    def first(self) -> Tensor:
        """Return the logits [B, V] of the holes' first tokens."""
        return self.session.predict(self.column)

    def following(self, token_B: Tensor) -> Tensor:
        """Write `token_B` and return the logits [B, V] of the next token."""
        self.advance(token_B)
        return self.session.write_and_predict(token_B, self.column - 1)

    @property
    def is_full(self) -> bool:
        """Whether `following` does more than to write and predict a token: never."""
        return False

    def advance(self, token_B: Tensor) -> None:
        """Update the state for tokens that the shared lanes write, not `session`."""
        self.column += 1

    def reorder(self, lane_B: Tensor) -> None:
        """Let lane i continue the tokens of lane `lane_B[i]`, whose place has the same length."""
        self.session.select_lanes(lane_B, self.first_column)

    def retain(self, lane_X: Tensor) -> None:
        """Keep only these lanes."""
        self.session.take_lanes(lane_X)

    def forget(self, lane_X: Tensor) -> None:
        """Keep the state of only these lanes; `session` does not change."""


def check_place(decoder: Decoder, place_tokens: int) -> None:
    """Raise UserError for a place that leaves no token of a segment for the text around it."""
    if place_tokens >= decoder.segment_tokens:
        raise UserError(
            f"a hole of {place_tokens} tokens does not fit the model's segments of {decoder.segment_tokens}: "
            "ask for fewer"
        )


class _Text:
    """A single text with a hole: `start` and `end` are the columns where its places begin and the text ends."""

    def __init__(self, decoder: Decoder, hole: Hole) -> None:
        longest, segment_tokens = max(hole.place_tokens), decoder.segment_tokens
        check_place(decoder, longest)
        check_positions(decoder, len(hole.sides.prefix) + longest + len(hole.sides.suffix))
        self.hole, self._decoder, self._shown = hole, decoder, hole.visible_sides(segment_tokens)
        self._history = len(hole.sides.prefix) - len(self._shown.prefix)
        self.start = min(self._history, decoder.memory_tokens) + len(self._shown.prefix)
        self.end = self.start + longest + len(self._shown.suffix)

    def read(self, session: DecodingSession, cache: HistoryCache | None) -> None:
        """Encode the text with each length of place into the lanes of an empty session."""
        device, sides = session.model.device, self.hole.sides
        if self._history:
            # What is before the segment is the same in all lanes.
            before_T = sides.before(0, self._history)
            history = laid_out(sides.prefix[: self._history], sides.suffix[:0], [0], device, before_T)
            memory = read_from_start(self._decoder, history, cache)
            if memory is not None:
                for lane in range(len(self.hole.place_tokens)):
                    session.copy_from(memory, lane, 0)
        before_T = sides.before(self._history, len(sides.prefix))
        session.encode(
            laid_out(self._shown.prefix, self._shown.suffix, self.hole.place_tokens, device, before_T)
        )


def laid_out(
    prefix: NDArray[np.int64],
    suffix: NDArray[np.int64],
    place_tokens: Sequence[int],
    device: torch.device,
    before_T: NDArray[np.int64] | None = None,
) -> Context:
    """Return prefix, place and suffix of every lane; `before_T` as in `Sides`."""
    start, length = len(prefix), len(suffix)
    tokens_BT = torch.full((len(place_tokens), start + max(place_tokens) + length), EMPTY)
    tokens_BT[:, :start] = torch.from_numpy(prefix)
    for lane, place in enumerate(place_tokens):
        tokens_BT[lane, start + place : start + place + length] = torch.from_numpy(suffix)
    given_BT = tokens_BT != EMPTY
    before_BT = torch.zeros_like(tokens_BT)
    before_BT[:, :start] = torch.from_numpy(Sides(prefix, suffix, before_T=before_T).before(0, start))
    return Context(tokens_BT.clamp(min=0).to(device), given_BT.to(device), before_BT.to(device))
