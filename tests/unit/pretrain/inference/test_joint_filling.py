"""Several holes of one text, against a slow loop of one whole pass per prediction."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cluster.errors import UserError
from data_prep.documents import SPECIAL_TOKENS
from pretrain.inference.decoder import Decoder
from pretrain.inference.generation import Generated
from pretrain.inference.hole import Sides
from pretrain.inference.infilling import HoleRequest, fill_known_length, fill_unknown_length, place_lengths
from pretrain.inference.joint_filling import HoleSize, fill_jointly
from pretrain.inference.sampling import GREEDY, Sampling
from pretrain.inference.scoring import score_chosen
from pretrain.inference.token_rules import TokenRules, specials_but
from pretrain.model.transformer import TwoStreamTransformer
from tests.slow_logits import logits_at
from tests.small_models import small_model

FP64_TOLERANCE = 1e-9
NUM_SPECIALS = len(SPECIAL_TOKENS)
END, EOD = SPECIAL_TOKENS.index("<end_hole>"), SPECIAL_TOKENS.index("<eod>")
VOCAB, SEGMENT = NUM_SPECIALS + 9, 96

Tokens = NDArray[np.int64]
Row = list[int | None]
"""A text with its `<eod>`; None where there is no token."""


def model_of(seed: int = 0) -> TwoStreamTransformer:
    return small_model(vocab_size=VOCAB, seed=seed)


def random_parts(lengths: list[int], seed: int = 0) -> list[Tokens]:
    random = np.random.default_rng(seed)
    parts = [random.integers(NUM_SPECIALS, VOCAB, length) for length in lengths]
    return [np.insert(parts[0], 0, EOD), *parts[1:]]


def best(
    model: TwoStreamTransformer, row: Row, ranks: dict[int, int], place: int, never: tuple[int, ...]
) -> tuple[int, float, float]:
    """The likeliest allowed token at a place, its probability among those allowed, and its log-probability."""
    shown = [(at, ranks.get(at, 0), token) for at, token in enumerate(row) if token is not None]
    logits = logits_at(model, shown, place, model.empty_memory(1))
    allowed = logits.index_fill(0, torch.tensor(never), -math.inf)
    token = int(allowed.argmax())
    return token, float(allowed.softmax(-1).max()), float(logits.log_softmax(-1)[token])


def laid_out(parts: list[Tokens], fillings: list[list[int] | int]) -> tuple[Row, list[range]]:
    """The text with fillings, or (a number) so many empty places, and where they are."""
    row: Row = list(parts[0].tolist())
    places = []
    for filling, part in zip(fillings, parts[1:], strict=True):
        tokens: Row = [None] * filling if isinstance(filling, int) else list(filling)
        places.append(range(len(row), len(row) + len(tokens)))
        row += [*tokens, *part.tolist()]
    return row, places


def known_by_hand(
    model: TwoStreamTransformer, parts: list[Tokens], lengths: list[int], order: list[int] | None
) -> tuple[list[list[int]], float, list[int]]:
    """The tokens of every hole, their joint log-likelihood, and the places in the order of choice."""
    row, places = laid_out(parts, list(lengths))
    left = [place for number in order or range(len(lengths)) for place in places[number]]
    ranks: dict[int, int] = {}
    total = 0.0
    while left:
        choices = {place: best(model, row, ranks, place, specials_but(None)) for place in left}
        place = left[0] if order is not None else max(left, key=lambda one: choices[one][1])  # noqa: B023
        row[place] = choices[place][0]
        total += choices[place][2]
        ranks[place] = len(ranks) + 1
        left.remove(place)
    return [[row[place] or 0 for place in one] for one in places], total, list(ranks)


def unknown_by_hand(
    model: TwoStreamTransformer, parts: list[Tokens], sizes: list[HoleSize], order: list[int]
) -> tuple[list[list[int]], float]:
    """Holes in the given order, each filled by the likeliest beginning of a filling, per token ** 0.7, in any place."""
    fillings: list[list[int] | int] = [
        size.num_tokens if size.is_known else place_lengths(size.num_tokens)[0] for size in sizes
    ]
    total = 0.0
    for number in order:
        tried = []
        most = sizes[number].num_tokens
        for place in place_lengths(most):
            row, places = laid_out(parts, [*fillings[:number], place, *fillings[number + 1 :]])
            start, tokens, ranks, score = places[number].start, [], {}, 0.0  # type: ignore[var-annotated]
            while True:
                never = specials_but("<end_hole>" if tokens else None)  # no filling is empty
                token, _, one = best(model, row, ranks, start + len(tokens), never)
                shown = [(at, ranks.get(at, 0), token) for at, token in enumerate(row) if token is not None]
                logits = logits_at(model, shown, start + len(tokens), model.empty_memory(1))
                ended = score + float(logits.log_softmax(-1)[END])
                if tokens:
                    tried.append((ended / (len(tokens) + 1) ** 0.7, ended, list(tokens)))
                if token == END or len(tokens) == place - 1:
                    break
                score += one
                row[start + len(tokens)] = token
                ranks[start + len(tokens)] = len(ranks) + 1
                tokens.append(token)
        _, score, tokens = max(tried)
        total += score
        fillings[number] = tokens
    return [one for one in fillings if isinstance(one, list)], total


def written(fillings: tuple[Generated, ...]) -> list[list[int]]:
    return [list(one.tokens) for one in fillings]


@settings(deadline=None, max_examples=12)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from([1, 3]),
    st.data(),
)
def test_holes_of_known_length_are_those_of_one_pass_per_token(
    lengths: list[int], seed: int, by_certainty: bool, at_once: int, data: st.DataObject
) -> None:
    model, parts = model_of(seed), random_parts([3] + [2] * len(lengths), seed)
    order = None if by_certainty else data.draw(st.permutations(range(len(lengths))))
    # Several at once are planned together, so only one at a time is by certainty token by token.
    at_once = 1 if by_certainty else at_once
    found = fill_jointly(
        Decoder(model, SEGMENT),
        parts,
        [HoleSize(length, is_known=True) for length in lengths],
        GREEDY,
        order=order,
        at_once=at_once,
        end_hole_id=END,
    )
    tokens, total, places = known_by_hand(model, parts, lengths, order)
    assert written(found.fillings) == tokens
    assert found.log_likelihood == pytest.approx(total, abs=FP64_TOLERANCE)
    assert found.num_passes <= sum(lengths) + 1
    # The same by the project's own scoring: the chain rule in the order of choice, the rest given.
    row, of_holes = laid_out(parts, list(tokens))
    scored = score_chosen(model, np.array(row[1:]), np.array(places) - 1, EOD, SEGMENT)
    assert found.log_likelihood == pytest.approx(scored.log_likelihood, abs=FP64_TOLERANCE)
    first_choice = {number: min(places.index(place) for place in one) for number, one in enumerate(of_holes)}
    assert list(found.order) == sorted(first_choice, key=first_choice.__getitem__)


@settings(deadline=None, max_examples=6)
@given(st.integers(0, 5), st.permutations(range(2)))
def test_holes_of_unknown_length_see_what_was_written_in_the_others(seed: int, order: list[int]) -> None:
    model, parts = model_of(seed), random_parts([3, 4, 2], seed)
    sizes = [HoleSize(5, is_known=False), HoleSize(8, is_known=False)]
    found = fill_jointly(Decoder(model, SEGMENT), parts, sizes, GREEDY, order=order, end_hole_id=END)
    tokens, total = unknown_by_hand(model, parts, sizes, order)
    assert written(found.fillings) == tokens
    assert found.log_likelihood == pytest.approx(total, abs=FP64_TOLERANCE)
    assert list(found.order) == order
    assert found.num_passes <= (5 + 1) + (8 + 1)


def test_by_certainty_the_first_hole_is_the_one_whose_first_token_is_surest() -> None:
    for seed in range(4):
        model, parts = model_of(seed), random_parts([3, 4, 2, 1], seed)
        sizes = [HoleSize(5, is_known=False), HoleSize(2, is_known=True), HoleSize(3, is_known=False)]
        found = fill_jointly(Decoder(model, SEGMENT), parts, sizes, GREEDY, end_hole_id=END)
        row, places = laid_out(parts, [place_lengths(5)[0], 2, place_lengths(3)[0]])
        surest = [best(model, row, {}, place.start, specials_but(None))[1] for place in places]
        assert found.order[0] == surest.index(max(surest))
        given_order = fill_jointly(
            Decoder(model, SEGMENT), parts, sizes, GREEDY, order=list(found.order), end_hole_id=END
        )
        assert sorted(found.order) == [0, 1, 2]
        if found.order[-1] != 1:  # then the last hole was filled whole in both
            assert len(given_order.fillings) == 3


@pytest.mark.parametrize("lengths", [(4, 3), (120, 110)])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_single_hole_is_filled_as_it_always_was_also_in_a_long_text(
    lengths: tuple[int, int], is_known: bool
) -> None:
    decoder = Decoder(model_of(2), 48)
    parts = random_parts(list(lengths))
    found = fill_jointly(decoder, parts, [HoleSize(5, is_known)], GREEDY, order=[0], end_hole_id=END)
    request = HoleRequest(Sides(parts[0], parts[1]), 5)
    if is_known:
        (alone,) = fill_known_length(decoder, [request], GREEDY, TokenRules(specials_but(None)))
    else:
        (alone,) = fill_unknown_length(
            decoder, [request], GREEDY, TokenRules(specials_but("<end_hole>"), END)
        )
    assert found.fillings[0].tokens == alone[0].tokens
    assert found.log_likelihood == pytest.approx(alone[0].log_likelihood, abs=FP64_TOLERANCE)


def test_in_a_long_text_each_hole_sees_the_other_and_both_sides() -> None:
    model = model_of(1)
    decoder = Decoder(model, 32)
    sizes = [HoleSize(2, is_known=True), HoleSize(2, is_known=True)]
    parts = random_parts([200, 6, 60])

    def likelihoods(changed: list[Tokens]) -> list[float]:
        found = fill_jointly(decoder, changed, sizes, GREEDY, order=[1, 0], end_hole_id=END)
        return [one.log_likelihood for one in found.fillings]

    before = likelihoods(parts)
    for part, index, is_seen in ((0, -1, True), (0, -14, True), (2, 3, True), (2, 40, False), (0, 1, False)):
        changed = [one.copy() for one in parts]
        changed[part][index] = NUM_SPECIALS + (changed[part][index] - NUM_SPECIALS + 1) % 9
        assert (likelihoods(changed) != before) == is_seen, (part, index)


@pytest.mark.parametrize(("at_once", "temperature"), [(1, 1.0), (3, 0.7)])
def test_samples_follow_the_joint_distribution_in_the_order_of_choice(
    at_once: int, temperature: float
) -> None:
    """Chi-squared over all outcomes of two holes of one token each, the second filled first."""
    vocab = NUM_SPECIALS + 3
    model = small_model(vocab_size=vocab, seed=3)
    decoder = Decoder(model, SEGMENT)
    parts = [np.array([EOD, NUM_SPECIALS]), np.array([NUM_SPECIALS + 1]), np.array([NUM_SPECIALS + 2])]
    sizes = [HoleSize(1, is_known=True)] * 2
    num_samples = 500
    counts = dict.fromkeys(itertools.product(range(NUM_SPECIALS, vocab), repeat=2), 0)
    for sample in range(num_samples):
        found = fill_jointly(
            decoder,
            parts,
            sizes,
            Sampling(temperature),
            order=[1, 0],
            at_once=at_once,
            end_hole_id=END,
            sample=sample,
        )
        counts[found.fillings[0].tokens + found.fillings[1].tokens] += 1

    def probability(row: Row, place: int, ranks: dict[int, int], token: int) -> float:
        shown = [(at, ranks.get(at, 0), one) for at, one in enumerate(row) if one is not None]
        logits = logits_at(model, shown, place, model.empty_memory(1))[NUM_SPECIALS:]
        return float((logits / temperature).softmax(-1)[token - NUM_SPECIALS])

    row, (first, second) = laid_out(parts, [1, 1])
    expected = []
    for tokens in counts:
        with_second = row.copy()
        with_second[second.start] = tokens[1]
        expected.append(
            num_samples
            * probability(row, second.start, {}, tokens[1])
            * probability(with_second, first.start, {second.start: 1}, tokens[0])
        )
    assert math.fsum(expected) == pytest.approx(num_samples)
    statistic = sum((seen - want) ** 2 / want for seen, want in zip(counts.values(), expected, strict=True))
    assert statistic < 20.09, "the 99 % point of chi-squared with 8 degrees of freedom"


def test_requests_that_cannot_be_filled_are_refused() -> None:
    decoder, parts = Decoder(model_of(), 32), random_parts([3, 20, 3])
    known = [HoleSize(6, is_known=True)] * 2
    with pytest.raises(UserError, match="from the first hole to the last there are up to 32 tokens"):
        fill_jointly(decoder, parts, known, GREEDY, end_hole_id=END)
    with pytest.raises(UserError, match="at least 1 token, got 0"):
        fill_jointly(decoder, parts, [known[0], HoleSize(0, is_known=True)], GREEDY, end_hole_id=END)
    for order in ([0], [0, 0], [1, 2]):
        with pytest.raises(UserError, match="names each of 0 to 1 once"):
            fill_jointly(
                decoder, parts, [HoleSize(1, is_known=True)] * 2, GREEDY, order=order, end_hole_id=END
            )
