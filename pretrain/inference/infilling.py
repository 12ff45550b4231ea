"""Filling a hole from left to right, token ids in and out."""

from collections.abc import Sequence
from dataclasses import replace

from cluster.errors import UserError
from pretrain.inference.beam import beam_search
from pretrain.inference.generation import Generated, generate
from pretrain.inference.hole import Hole, Sides, check_place
from pretrain.inference.sampling import Sampling, uniforms_of_lanes
from pretrain.inference.session import Decoder
from pretrain.inference.vocabulary import TokenRules

_SHORTEST_PLACE_TOKENS = 8
_LONGEST_STEP_TOKENS = 32


def fill_known_length(
    decoder: Decoder,
    sides: Sides,
    length: int,
    sampling: Sampling,
    rules: TokenRules,
    *,
    num_samples: int = 1,
    beam: int | None = None,
) -> list[Generated]:
    """`num_samples` fillings of exactly `length` tokens; with `beam` the best of a beam of that width."""
    if length < 1:
        raise UserError(f"a hole must have at least 1 token, got {length}")
    rules = replace(rules, end=None)
    text = Hole(decoder, sides, [length], beam or num_samples)
    if beam:
        return beam_search(text, [length], beam, rules)[0][:num_samples]
    uniform_BT = uniforms_of_lanes(
        sampling, [sides.context()], range(num_samples), length, decoder.model.device
    )
    return generate(text, [length] * num_samples, sampling, rules, uniform_BT)


def fill_unknown_length(
    decoder: Decoder,
    sides: Sides,
    max_tokens: int,
    sampling: Sampling,
    rules: TokenRules,
    *,
    num_samples: int = 1,
    beam: int | None = None,
) -> list[Generated]:
    """`num_samples` fillings of at most `max_tokens` tokens, each ended by `rules.end`.

    The text is laid out with places of several lengths, side by side (`place_lengths`), and of each sample's
    fillings the one is kept whose tokens, the end among them, are likeliest on average. A filling that reaches the
    end of its place is ended there, and pays for it. With `beam` a beam of that width in every place; of equal
    fillings the likeliest is kept.
    """
    if max_tokens < 1:
        raise UserError(f"a hole must have at least 1 token, got {max_tokens}")
    assert rules.end is not None
    check_place(decoder, max_tokens + 1)
    places = place_lengths(max_tokens)
    lanes_each = beam or num_samples
    text = Hole(decoder, sides, places, lanes_each)
    if beam:
        limits = [place - 1 for place in places]
        found = beam_search(text, limits, beam, rules, must_end=True)
        return _distinct(sorted((one for row in found for one in row), key=_mean, reverse=True))[:num_samples]
    limits = [place - 1 for place in places for _ in range(num_samples)]
    uniform_BT = uniforms_of_lanes(
        sampling, [sides.context()] * len(places), range(num_samples), max(places), decoder.model.device
    )
    lanes = generate(text, limits, sampling, rules, uniform_BT, must_end=True)
    return [max(lanes[sample::num_samples], key=_mean) for sample in range(num_samples)]


def place_lengths(max_tokens: int) -> Sequence[int]:
    """8, 16, 32, 64, 96 ... and the one that just holds `max_tokens` and the end.

    Steps of at most 32, because pretraining leaves 1 to 32 positions more than the hole has tokens: whatever its
    length, one place is as the model knows it.
    """
    longest = max_tokens + 1
    places = []
    place = _SHORTEST_PLACE_TOKENS
    while place < longest:
        places.append(place)
        place += min(place, _LONGEST_STEP_TOKENS)
    return [*places, longest]


def _distinct(fillings: Sequence[Generated]) -> list[Generated]:
    """The first of all that have the same tokens."""
    first: dict[tuple[int, ...], Generated] = {}
    for one in fillings:
        first.setdefault(one.tokens, one)
    return list(first.values())


def _mean(filling: Generated) -> float:
    return filling.log_likelihood / max(1, filling.num_chosen)
