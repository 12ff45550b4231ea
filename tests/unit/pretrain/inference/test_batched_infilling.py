"""Holes of several texts that are filled side by side get what each gets alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import UserError
from pretrain.inference import infilling
from pretrain.inference.decoder import Decoder
from pretrain.inference.generation import Generated
from pretrain.inference.hole import Hole, Holes, Sides
from pretrain.inference.infilling import HoleRequest, fill_known_length, fill_unknown_length
from pretrain.inference.language_model import PermutationLM
from pretrain.inference.sampling import GREEDY, Sampling
from pretrain.inference.token_rules import TokenRules
from pretrain.model.config import AbsoluteLearnedPositions, PositionsConfig
from tests.small_models import ABSOLUTE, RELATIVE, VOCAB, small_model

FP64_TOLERANCE = 1e-10
END = 4
RULES = TokenRules(never=(5,), end=END)
SAMPLED = Sampling(1.0, top_k=8, seed=3)


def sides_of(seed: int, before: int, after: int) -> Sides:
    random = np.random.default_rng(seed)
    return Sides(random.integers(0, VOCAB, before), random.integers(0, VOCAB, after))


def wanted_of(sizes: Sequence[tuple[int, int, int]]) -> list[HoleRequest]:
    """Of (tokens before, tokens behind, tokens of the hole)."""
    return [HoleRequest(sides_of(seed, *one[:2]), one[2]) for seed, one in enumerate(sizes)]


SHORT = [(3, 2, 11), (9, 1, 5), (1, 7, 11), (5, 0, 1), (0, 4, 9)]
LONG = [*SHORT, (40, 30, 11), (80, 3, 6), (55, 55, 11), (3, 60, 11), (33, 30, 11)]
"""Some fit a segment of 32, of some a side or both do not."""


def assert_same(found: Sequence[Generated], alone: Sequence[Generated]) -> None:
    assert [one.tokens for one in found] == [one.tokens for one in alone]
    for one, other in zip(found, alone, strict=True):
        assert one.log_likelihood == pytest.approx(other.log_likelihood, abs=FP64_TOLERANCE)
        assert (one.ended, one.forced) == (other.ended, other.forced)


@pytest.mark.parametrize("options", [{}, {"num_samples": 2}, {"beam": 3, "num_samples": 2}], ids=str)
@pytest.mark.parametrize("fill", [fill_known_length, fill_unknown_length])
@pytest.mark.parametrize("positions", RELATIVE + ABSOLUTE, ids=lambda one: one.kind)
def test_fillings_do_not_depend_on_other_texts(
    positions: PositionsConfig, fill: Any, options: dict[str, int]
) -> None:
    sampling = SAMPLED if "num_samples" in options and "beam" not in options else GREEDY
    decoder = Decoder(small_model(positions, segment_encodings=True), 32)
    holes = wanted_of(SHORT if positions in ABSOLUTE else LONG)
    together = fill(decoder, holes, sampling, RULES, **options)
    for hole, found in zip(holes, together, strict=True):
        (alone,) = fill(decoder, [hole], sampling, RULES, **options)
        assert_same(found, alone)
    assert len({round(one.log_likelihood, 6) for found in together for one in found}) >= len(holes)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(1, 20)), min_size=2, max_size=6),
    st.integers(0, 4),
    st.sampled_from(["greedy", "sampled", "beam"]),
    st.sampled_from([0, 3, 20]),
)
@settings(max_examples=40, deadline=None)
def test_any_texts_may_be_filled_side_by_side(
    sizes: list[tuple[int, int, int]], seed: int, way: str, memory_tokens: int
) -> None:
    decoder = Decoder(small_model(seed=seed, memory_tokens=memory_tokens), 24)
    sampling, beam = (SAMPLED if way == "sampled" else GREEDY), (2 if way == "beam" else None)
    holes = wanted_of(sizes)
    together = fill_unknown_length(decoder, holes, sampling, RULES, beam=beam)
    for hole, found in zip(holes, together, strict=True):
        assert_same(found, fill_unknown_length(decoder, [hole], sampling, RULES, beam=beam)[0])


def test_places_that_need_every_position_lie_beside_longer_sides() -> None:
    """Side by side the columns are more than a table of positions has."""
    decoder = Decoder(small_model(AbsoluteLearnedPositions(max_positions=32)), 32)
    holes = wanted_of([(28, 0, 3), (0, 28, 3), (1, 2, 24)])
    together = fill_unknown_length(decoder, holes, GREEDY, RULES)
    for hole, found in zip(holes, together, strict=True):
        assert_same(found, fill_unknown_length(decoder, [hole], GREEDY, RULES)[0])


@pytest.mark.parametrize("positions", RELATIVE, ids=lambda one: one.kind)
@pytest.mark.parametrize("memory_tokens", [0, 6, 40])
def test_texts_of_any_length_lie_side_by_side(positions: PositionsConfig, memory_tokens: int) -> None:
    decoder = Decoder(small_model(positions, memory_tokens=memory_tokens), 32)
    sizes = ((3, 2), (40, 40), (19, 1), (90, 30), (40, 2), (0, 90))
    holes = [Hole(sides_of(seed, *one), [8, 12]) for seed, one in enumerate(sizes)]
    together = Holes(decoder, holes)
    tokens_BT = torch.tensor(np.random.default_rng(9).integers(0, VOCAB, (len(together.first()), 5)))
    written = [together.first(), *(together.following(token_B) for token_B in tokens_BT.T)]
    for number, hole in enumerate(holes):
        lanes = slice(2 * number, 2 * number + 2)
        alone = Holes(decoder, [hole])
        for found_BV, wanted_BV in zip(
            written, [alone.first(), *(alone.following(one_B) for one_B in tokens_BT[lanes].T)], strict=True
        ):
            torch.testing.assert_close(found_BV[lanes], wanted_BV, rtol=0, atol=FP64_TOLERANCE)


def test_another_first_sample_is_a_later_one() -> None:
    decoder, sides = Decoder(small_model(), 32), sides_of(0, 3, 2)
    ((first, second),) = fill_unknown_length(decoder, [HoleRequest(sides, 9)], SAMPLED, RULES, num_samples=2)
    found = fill_unknown_length(decoder, [HoleRequest(sides, 9, 1), HoleRequest(sides, 9)], SAMPLED, RULES)
    assert [[one.tokens] for one in (second, first)] == [[one.tokens for one in row] for row in found]
    assert first.tokens != second.tokens


def test_a_higher_length_power_prefers_longer_fillings() -> None:
    decoder = Decoder(small_model(seed=4), 40)
    holes = wanted_of([(3, 2, 30), (4, 4, 30), (9, 1, 30)])
    for beam in (None, 3):
        lengths = [
            [len(row[0].tokens) for row in fill_unknown_length(
                decoder, holes, GREEDY, RULES, beam=beam, length_power=power
            )]
            for power in (0.0, 1.0, 3.0)
        ]  # fmt: skip
        assert sorted(map(sum, lengths)) == list(map(sum, lengths))
        assert sum(lengths[0]) < sum(lengths[-1])


TEXTS = [("def f(", "):\n    pass\n"), ("x = ", ""), ("import string\n" * 30, "\n" * 40), ("", "return x")]


@pytest.mark.parametrize(
    "options",
    [
        {"length": 4},
        {"length": 4, "order": "most_certain", "at_once": 2},
        {"max_new_tokens": 9},
        {"max_new_tokens": 9, "beam": 3, "num_samples": 2},
        {"max_new_tokens": 9, "sampling": Sampling(0.9), "num_samples": 2},
    ],
)
def test_texts_are_filled_as_one_by_one(lm: PermutationLM, options: dict[str, Any]) -> None:
    alone = [lm.infill(*text, **options) for text in TEXTS]
    for max_lanes in (1, 7, 100):
        found = lm.infill_texts(TEXTS, max_lanes=max_lanes, **options)
        assert [[one.data for one in row] for row in found] == [[one.data for one in row] for row in alone]


def test_every_text_may_have_a_length_of_its_own(lm: PermutationLM) -> None:
    found = lm.infill_texts(TEXTS, length=[3, 1, 5, 2])
    assert [one.num_tokens for (one,) in found] == [3, 1, 5, 2]
    assert lm.infill_texts([]) == []
    with pytest.raises(UserError, match="there are 4 texts and 2 lengths"):
        lm.infill_texts(TEXTS, length=[3, 1])
    with pytest.raises(UserError, match="a hole must have at least 1 token, got 0"):
        lm.infill_texts(TEXTS, length=[3, 1, 0, 2])


def test_no_more_lanes_than_allowed_are_filled_side_by_side(
    lm: PermutationLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []

    def fill(decoder: Decoder, holes: Sequence[HoleRequest], *others: Any, **options: Any) -> Any:
        batches.append(len(holes))
        return fill_unknown_length(decoder, holes, *others, **options)

    monkeypatch.setattr(infilling, "fill_unknown_length", fill)
    lm.infill_texts(TEXTS, max_new_tokens=9, sampling=SAMPLED, num_samples=3, max_lanes=18)
    assert batches == [3, 1], "two places, three samples"
