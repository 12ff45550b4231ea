"""Scores against a slow loop that asks the model for one token at a time and shows it nothing that is hidden."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cluster.errors import UserError
from pretrain.inference.scoring import TokenScores, score_chosen, score_left_to_right
from pretrain.model.config import (
    AbsoluteLearnedPositions,
    ModelConfig,
    RotaryPositions,
    TransformerXLPositions,
)
from pretrain.model.layout import TokenLayout
from pretrain.model.segment_memory import SegmentMemory
from pretrain.model.transformer import TwoStreamTransformer

FP64_TOLERANCE = 1e-10
VOCAB, EOD, SEGMENT = 19, 1, 8

Tokens = NDArray[np.int64]


def small_model(kind: str = "transformer_xl", memory_tokens: int = 5) -> TwoStreamTransformer:
    torch.manual_seed(0)
    positions = {
        "transformer_xl": TransformerXLPositions(),
        "rotary": RotaryPositions(),
        "absolute_learned": AbsoluteLearnedPositions(max_positions=SEGMENT),
    }[kind]
    config = ModelConfig(
        num_layers=3,
        model_dim=8,
        num_heads=2,
        head_dim=4,
        ffn_dim=12,
        memory_tokens=memory_tokens,
        positions=positions,
        segment_encodings=kind == "rotary",
    )
    model = TwoStreamTransformer(config, VOCAB).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def random_text(num_tokens: int, seed: int = 0) -> Tokens:
    """Without specials."""
    return np.random.default_rng(seed).integers(EOD + 1, VOCAB, num_tokens)


def places(
    model: TwoStreamTransformer, positions: list[int], ranks: list[int], tokens: list[int], extent: int
) -> TokenLayout:
    position, rank, token = torch.tensor([[positions], [ranks], [tokens]], dtype=torch.int64)
    document = (token != EOD).long() if model.config.segment_encodings else None
    return TokenLayout(position, rank, torch.zeros_like(position), document, extent)


@torch.no_grad()
def log_probability_of_one(
    model: TwoStreamTransformer,
    shown: list[tuple[int, int, int]],
    target: tuple[int, int],
    memory: SegmentMemory | None = None,
) -> float:
    """Of the (position, token) `target`, from the (position, rank, token) `shown`: the model gets nothing else."""
    position, token = target
    shown_positions, shown_ranks, tokens = ([one[part] for one in shown] for part in range(3))
    content = places(model, shown_positions, shown_ranks, tokens, SEGMENT)
    after_all = places(model, [position], [1 + max(shown_ranks, default=0)], [token], SEGMENT)
    logits = model(torch.tensor([tokens], dtype=torch.int64), content, after_all, memory).logits_BPV[0, 0]
    return float(logits.log_softmax(dim=-1)[token])


def chosen_one_by_one(model: TwoStreamTransformer, text: Tokens, order: list[int]) -> list[float]:
    """`score_chosen` of a text that fits into a segment."""
    row = [EOD, *text.tolist()]
    shown = [(place, 0, token) for place, token in enumerate(row) if place - 1 not in order]
    found = []
    for rank, index in enumerate(order, start=1):
        found.append(log_probability_of_one(model, shown, (index + 1, row[index + 1])))
        shown.append((index + 1, rank, row[index + 1]))
    return found


@torch.no_grad()
def left_to_right_one_by_one(model: TwoStreamTransformer, text: Tokens) -> list[float]:
    """`score_left_to_right` of a model with memory."""
    row = [EOD, *text.tolist()]
    found, memory = [], model.empty_memory(1)
    for first in range(0, len(row), SEGMENT):
        part = row[first : first + SEGMENT]
        shown: list[tuple[int, int, int]] = []
        for place, token in enumerate(part):
            found.append(log_probability_of_one(model, shown, (place, token), memory))
            shown.append((place, place + 1, token))
        whole = places(model, list(range(len(part))), list(range(1, len(part) + 1)), part, len(part))
        memory = model(torch.tensor([part]), whole, whole, memory).memory
    return found[1:]


@settings(deadline=None, max_examples=25)
@given(
    st.integers(1, SEGMENT - 1), st.sampled_from(["transformer_xl", "rotary", "absolute_learned"]), st.data()
)
def test_chosen_tokens_in_any_order_equal_one_call_per_token(
    length: int, kind: str, data: st.DataObject
) -> None:
    model = small_model(kind, memory_tokens=0 if kind == "absolute_learned" else 5)
    text = random_text(length)
    order = data.draw(st.permutations(range(length)))[: data.draw(st.integers(1, length))]
    scores = score_chosen(model, text, np.array(order), EOD, SEGMENT)
    assert scores.sees_all
    assert scores.index_P.tolist() == order
    np.testing.assert_allclose(
        scores.log_probability_P, chosen_one_by_one(model, text, order), atol=FP64_TOLERANCE
    )


@pytest.mark.parametrize("kind", ["transformer_xl", "rotary"])
@pytest.mark.parametrize("memory_tokens", [3, 20])
def test_texts_of_different_lengths_equal_one_call_per_token(kind: str, memory_tokens: int) -> None:
    model = small_model(kind, memory_tokens)
    texts = [random_text(length, seed=length) for length in (3, 30, 0, 7, 8, 19)]
    for text, scores in zip(texts, score_left_to_right(model, texts, EOD, SEGMENT), strict=True):
        assert scores.sees_all == (len(text) < SEGMENT)
        np.testing.assert_allclose(
            scores.log_probability_P, left_to_right_one_by_one(model, text), atol=FP64_TOLERANCE
        )


@pytest.mark.parametrize("kind", ["transformer_xl", "absolute_learned"])
@pytest.mark.parametrize("length", [9, 12, 15, 16, 31])
def test_without_memory_a_token_sees_at_least_half_a_segment(kind: str, length: int) -> None:
    model = small_model(kind, memory_tokens=0)
    text = random_text(length)
    row = [EOD, *text.tolist()]
    (scores,) = score_left_to_right(model, [text], EOD, SEGMENT)
    for index, found in enumerate(scores.log_probability_P, start=1):
        if index < SEGMENT:
            first = 0
        else:  # windows end at 8, 12, 16, ...; the last one at the end of the text
            end = min(len(row), SEGMENT + 4 * ((index - SEGMENT) // 4 + 1))
            first = end - SEGMENT
            assert index - first >= SEGMENT // 2
        shown = [(place - first, place - first + 1, row[place]) for place in range(first, index)]
        expected = log_probability_of_one(model, shown, (index - first, row[index]))
        assert found == pytest.approx(expected, abs=FP64_TOLERANCE)


@pytest.mark.parametrize("memory_tokens", [0, 5])
@pytest.mark.parametrize("num_tokens", [3, 21])
def test_the_likely_tokens_of_a_place_are_those_that_score_best_there(
    memory_tokens: int, num_tokens: int
) -> None:
    model, text = small_model(memory_tokens=memory_tokens), random_text(num_tokens)
    (without,) = score_left_to_right(model, [text], EOD, SEGMENT)
    (scores,) = score_left_to_right(model, [text], EOD, SEGMENT, num_likely=4)
    assert without.likely is None
    assert scores.likely is not None
    np.testing.assert_array_equal(scores.log_probability_P, without.log_probability_P)
    assert scores.likely.token_PK.shape == scores.likely.log_probability_PK.shape == (num_tokens, 4)
    for place in {0, num_tokens // 2, num_tokens - 1}:
        by_token = []
        for token in range(VOCAB):
            changed = text.copy()
            changed[place] = token
            (other,) = score_left_to_right(model, [changed], EOD, SEGMENT)
            by_token.append(other.log_probability_P[place])
        best = np.argsort(by_token)[::-1][:4]
        assert scores.likely.token_PK[place].tolist() == best.tolist()
        np.testing.assert_allclose(
            scores.likely.log_probability_PK[place], np.array(by_token)[best], atol=FP64_TOLERANCE
        )


def test_more_likely_tokens_than_there_are_is_all_of_them() -> None:
    (scores,) = score_left_to_right(small_model(), [random_text(3)], EOD, SEGMENT, num_likely=VOCAB + 1)
    assert scores.likely is not None
    np.testing.assert_allclose(np.exp(scores.likely.log_probability_PK).sum(axis=1), 1.0)


def test_all_tokens_chosen_from_left_to_right_are_the_text_from_left_to_right() -> None:
    model, text = small_model(), random_text(SEGMENT - 1)
    chosen = score_chosen(model, text, np.arange(len(text)), EOD, SEGMENT)
    (whole,) = score_left_to_right(model, [text], EOD, SEGMENT)
    np.testing.assert_allclose(chosen.log_probability_P, whole.log_probability_P, atol=FP64_TOLERANCE)


def test_the_probabilities_of_all_values_of_two_chosen_tokens_sum_to_one() -> None:
    model, text = small_model(), random_text(5)
    total = 0.0
    for first in range(VOCAB):
        for second in range(VOCAB):
            text[[3, 1]] = first, second
            total += math.exp(score_chosen(model, text, np.array([3, 1]), EOD, SEGMENT).log_likelihood)
    assert total == pytest.approx(1.0, abs=1e-9)


def test_in_a_long_text_chosen_tokens_see_both_sides_and_the_memory() -> None:
    model, text = small_model(), random_text(60)
    order = np.array([40, 38])
    before = score_chosen(model, text, order, EOD, SEGMENT)
    assert not before.sees_all
    for place, is_seen in [
        (41, True),
        (37, True),
        (33, True),
        (30, True),
        (44, False),
        (59, False),
        (2, False),
    ]:
        changed = text.copy()
        changed[place] = (changed[place] + 1) % VOCAB
        after = score_chosen(model, changed, order, EOD, SEGMENT)
        assert (after.log_probability_P != before.log_probability_P).all() == is_seen, place
        assert (after.log_probability_P == before.log_probability_P).all() != is_seen, place


@pytest.mark.parametrize("memory_tokens", [0, 5, 20])
def test_in_a_long_text_no_chosen_token_is_seen_before_its_turn(memory_tokens: int) -> None:
    model, text = small_model(memory_tokens=memory_tokens), random_text(50)
    order = np.random.default_rng(1).permutation(50)[:30]
    before = score_chosen(model, text, order, EOD, SEGMENT).log_probability_P
    for turn in (0, 7, 15, 29):
        changed = text.copy()
        changed[order[turn]] = (changed[order[turn]] + 1) % VOCAB
        after = score_chosen(model, changed, order, EOD, SEGMENT).log_probability_P
        assert (after[:turn] == before[:turn]).all()
        assert after[turn] != before[turn]


def test_the_sums_are_those_of_the_tokens() -> None:
    scores = TokenScores(np.arange(3), np.log([0.5, 0.25, 0.125]), sees_all=True)
    assert scores.log_likelihood == pytest.approx(math.log(1 / 64))
    assert scores.bits == pytest.approx(6.0)
    assert scores.perplexity == pytest.approx(4.0)
    assert TokenScores(np.arange(0), np.zeros(0), sees_all=True).perplexity == 1.0
    assert TokenScores(np.arange(2), np.array([-1e30, -1.0]), sees_all=True).perplexity == math.inf


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([0, 5], "token 5 is outside the text: it has 5 tokens"),
        ([-1], "outside"),
        ([2, 2], "names a token twice"),
    ],
)
def test_an_order_that_no_text_has_is_refused(order: list[int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        score_chosen(small_model(), random_text(5), np.array(order), EOD, SEGMENT)
