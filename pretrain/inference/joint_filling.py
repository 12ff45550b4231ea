"""Filling of several holes of one text together: what is written in one hole is seen by all that are filled later.

While a hole of unknown length is left, holes are filled whole, one after the other. Those that are not filled yet are
room without tokens: as long as the hole where its length is known, else the shortest place. Once a hole is filled, the
text after it moves to where it belongs. Holes of known length, which have their final positions from the beginning,
are filled in one text whose keys and values are cached: its tokens are chosen one by one over all holes, or in turn.

All holes must fit one segment of the model; of the text around them it sees what a segment has room for, and the text
before that through its memory.

Shapes: T tokens of a text.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch.nn import functional

from cluster.errors import UserError
from pretrain.inference.any_order import fill_places
from pretrain.inference.decoder import Decoder
from pretrain.inference.generation import Generated
from pretrain.inference.hole import EMPTY, Sides, check_place
from pretrain.inference.infilling import HoleRequest, fill_unknown_length, place_lengths
from pretrain.inference.open_text import OpenText
from pretrain.inference.sampling import Sampling
from pretrain.inference.token_rules import TokenRules, specials_but


@dataclass(frozen=True)
class HoleSize:
    """The number of tokens of a hole, or the most that it may have if its length is not known."""

    num_tokens: int
    is_known: bool


@dataclass(frozen=True)
class JointFilling:
    """The fillings in the order of the text, and the numbers of the holes in the order in which they were begun.

    `log_likelihood` (nats, at temperature 1) of all chosen tokens, the ends of holes included, is exact for the order
    in which they were chosen. `num_passes` counts runs of the model, without those that read the text.
    """

    fillings: tuple[Generated, ...]
    order: tuple[int, ...]
    num_passes: int

    @property
    def log_likelihood(self) -> float:
        """The joint log-likelihood of all fillings."""
        return math.fsum(one.log_likelihood for one in self.fillings)


def fill_jointly(
    decoder: Decoder,
    parts: Sequence[NDArray[np.int64]],
    holes: Sequence[HoleSize],
    sampling: Sampling,
    *,
    order: Sequence[int] | None = None,
    at_once: int | None = None,
    end_hole_id: int,
    sample: int = 0,
) -> JointFilling:
    """Fill the hole after every part but the last, in the given order of their numbers, or by certainty.

    By certainty, the next hole is the one of whose first token the model is surest; once the lengths of all that are
    left are known, the next token is the surest of all. `at_once` as in `fill_places`. Raises UserError for holes that
    do not fit a segment together, and for an order that does not name each hole once.
    """
    if order is not None and sorted(order) != list(range(len(holes))):
        raise UserError(
            f"the order of {len(holes)} holes names each of 0 to {len(holes) - 1} once, got {list(order)}"
        )
    _check_sizes(decoder, parts, holes)
    filler = _JointFiller(decoder, parts, holes, sampling, at_once, end_hole_id, sample)
    before = decoder.num_passes
    left = list(range(len(holes))) if order is None else list(order)
    while left:
        if all(holes[number].is_known for number in left):
            filler.fill_known(left, by_certainty=order is None)
            break
        number = filler.surest(left) if order is None and len(left) > 1 else left[0]
        if holes[number].is_known:
            filler.fill_known([number], by_certainty=order is None)
        else:
            filler.fill_unknown(number)
        left.remove(number)
    return JointFilling(
        tuple(filler.filled[number] for number in range(len(holes))),
        tuple(filler.begun),
        decoder.num_passes - before,
    )


def _check_sizes(decoder: Decoder, parts: Sequence[NDArray[np.int64]], holes: Sequence[HoleSize]) -> None:
    for hole in holes:
        if hole.num_tokens < 1:
            raise UserError(f"a hole must have at least 1 token, got {hole.num_tokens}")
        check_place(decoder, hole.num_tokens + (not hole.is_known))
    span = sum(hole.num_tokens + (not hole.is_known) for hole in holes) + sum(map(len, parts[1:-1]))
    if span >= decoder.segment_tokens:
        raise UserError(
            f"from the first hole to the last there are up to {span:,} tokens, and this model sees segments of "
            f"{decoder.segment_tokens:,}: fill holes that are closer or shorter, or one after the other"
        )


@dataclass
class _JointFiller:
    """The state of a filling: the holes that are filled, and the numbers of those that were begun, in their order."""

    decoder: Decoder
    parts: Sequence[NDArray[np.int64]]
    holes: Sequence[HoleSize]
    sampling: Sampling
    at_once: int | None
    end_hole_id: int
    sample: int
    filled: dict[int, Generated] = field(default_factory=dict)
    begun: list[int] = field(default_factory=list)

    def surest(self, left: Sequence[int]) -> int:
        """Return the hole of whose first token the model is surest, after one pass."""
        row = self._row()
        history, end = self._window(row)
        text = OpenText(self.decoder, row.tokens_T[:end], history)
        logits_XV = text.predict([row.places[number].start for number in left])
        surest = [
            float(functional.softmax(self._rules(number).allow(logits_V[None], [[]]), dim=-1).max())
            for number, logits_V in zip(left, logits_XV, strict=True)
        ]
        return left[surest.index(max(surest))]

    def fill_known(self, numbers: Sequence[int], *, by_certainty: bool) -> None:
        """Fill holes of known length: by certainty over all of them, or one after the other."""
        row = self._row()
        history, end = self._window(row)
        places = [place for number in numbers for place in row.places[number]]
        found = fill_places(
            OpenText(self.decoder, row.tokens_T[:end], history),
            places,
            self.sampling,
            TokenRules(specials_but(None)),
            at_once=self.at_once,
            order="most_certain" if by_certainty else "left_to_right",
            sample=self.sample,
        )
        ascending = sorted(places)
        hole_at = {place: number for number in numbers for place in row.places[number]}
        for number in numbers:
            own = [index for index, place in enumerate(ascending) if hole_at[place] == number]
            self.filled[number] = Generated(
                tuple(found.tokens[index] for index in own),
                math.fsum(found.log_probabilities[index] for index in own),
                ended=False,
            )
        self.begun += dict.fromkeys(hole_at[ascending[index]] for index in found.order)

    def fill_unknown(self, number: int) -> None:
        """Fill a hole up to the end that the model chooses."""
        most_tokens = self.holes[number].num_tokens
        row = self._row({number: most_tokens + 1})
        place, (history, end) = row.places[number], self._window(row)
        sides = Sides(row.tokens_T[: place.start], row.tokens_T[place.stop : end], history)
        request = HoleRequest(sides, most_tokens, self.sample)
        ((found,),) = fill_unknown_length(
            self.decoder, [request], self.sampling, self._rules(number), at_once=self.at_once
        )
        self.filled[number] = found
        self.begun.append(number)

    def _rules(self, number: int) -> TokenRules:
        return TokenRules.of_hole(None if self.holes[number].is_known else self.end_hole_id)

    def _row(self, place_tokens: dict[int, int] | None = None) -> "_Row":
        """Lay out the text as it is filled so far; `place_tokens` are the lengths of chosen holes' places."""
        pieces, places, length = [self.parts[0]], [], len(self.parts[0])
        for number, (hole, part) in enumerate(zip(self.holes, self.parts[1:], strict=True)):
            if number in self.filled:
                tokens_T = np.array(self.filled[number].tokens, dtype=np.int64)
            else:
                shortest = hole.num_tokens if hole.is_known else place_lengths(hole.num_tokens)[0]
                tokens_T = np.full((place_tokens or {}).get(number, shortest), EMPTY)
            pieces += [tokens_T, part]
            places.append(range(length, length + len(tokens_T)))
            length += len(tokens_T) + len(part)
        return _Row(np.concatenate(pieces), places)

    def _window(self, row: "_Row") -> tuple[int, int]:
        """Return where the segment begins and ends: all holes, and half of the rest on both sides, or more."""
        first, last = row.places[0].start, row.places[-1].stop
        room = self.decoder.segment_tokens - (last - first)
        after = min(len(row.tokens_T) - last, max(room // 2, room - first))
        return max(0, first - (room - after)), last + after


@dataclass(frozen=True)
class _Row:
    """A text with its empty places; `places` has the range of every hole."""

    tokens_T: NDArray[np.int64]
    places: Sequence[range]
