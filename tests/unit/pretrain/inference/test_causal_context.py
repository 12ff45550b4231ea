"""A causal model reads what it is given from left to right in every use: each result against slow whole passes."""

import numpy as np
import pytest
import torch

from pretrain.inference.any_order import fill_any_order
from pretrain.inference.completion import Continuation
from pretrain.inference.decoder import Decoder
from pretrain.inference.embedding import embed_texts
from pretrain.inference.hidden_lines import TextLines, score_hidden_lines
from pretrain.inference.hole import Hole, Holes, Sides
from pretrain.inference.sampling import GREEDY
from pretrain.inference.scoring import score_chosen, score_left_to_right
from pretrain.inference.token_rules import TokenRules
from pretrain.model.config import PositionsConfig
from pretrain.model.layout import TokenLayout
from pretrain.model.segment_memory import SegmentMemory
from pretrain.model.transformer import TwoStreamTransformer
from tests.slow_logits import logits_at
from tests.small_models import RELATIVE, VOCAB, small_model

FP64_TOLERANCE = 1e-10
EOD, SEGMENT = 1, 24


def some_tokens(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(2, VOCAB, count)


def shown_in_turn(window: list[int], hidden: range) -> list[tuple[int, int, int]]:
    """(position, rank, token) of a window's tokens but the hidden ones, each of which sees those before it."""
    places = [place for place in range(len(window)) if place not in hidden]
    return [(place, rank, window[place]) for rank, place in enumerate(places)]


@torch.no_grad()
def memory_of(model: TwoStreamTransformer, tokens: list[int]) -> SegmentMemory:
    memory = model.empty_memory(1)
    for first in range(0, len(tokens), SEGMENT):
        part = torch.tensor([tokens[first : first + SEGMENT]])
        content = TokenLayout.contiguous(torch.arange(part.shape[1])[None], torch.zeros_like(part))
        memory = model(part, content, content, memory).memory
    return memory


@pytest.mark.parametrize("positions", RELATIVE, ids=lambda one: one.kind)
def test_a_hole_is_filled_after_both_sides_were_read_in_turn(positions: PositionsConfig) -> None:
    model = small_model(positions, context="causal")
    text = some_tokens(0, 60).tolist()
    history, window, hole = text[:SEGMENT], text[SEGMENT : 2 * SEGMENT], range(10, 14)
    sides = Sides(np.array(text[: SEGMENT + 10]), np.array(window[14:]), history_tokens=SEGMENT)
    lanes = Holes(Decoder(model, SEGMENT), [Hole(sides, [len(hole)])])
    memory = memory_of(model, history)
    shown = shown_in_turn(window, hole)
    found = lanes.first()[0]
    for place in hole:
        torch.testing.assert_close(found, logits_at(model, shown, place, memory), rtol=0, atol=FP64_TOLERANCE)
        shown.append((place, len(shown), window[place]))
        found = lanes.following(torch.tensor([window[place]]))[0] if place + 1 < hole.stop else found


def test_what_is_written_does_not_depend_on_a_later_token_and_a_bidirectional_model_does() -> None:
    rows = {}
    for context in ("causal", "bidirectional"):
        model = small_model(context=context)
        for last in (3, 4):
            lanes = Continuation(Decoder(model, SEGMENT), [np.array([1, 5, 7, last])], 4, 1)
            rows[context, last] = lanes.session.caches[-1].key_NBCH[:, :, :3].clone()
    assert torch.equal(rows["causal", 3], rows["causal", 4])
    assert not torch.equal(rows["bidirectional", 3], rows["bidirectional", 4])


def test_a_completion_has_the_probability_that_scoring_gives_it() -> None:
    model = small_model(context="causal")
    tokens = some_tokens(2, SEGMENT - 1)
    (scored,) = score_left_to_right(model, [tokens], EOD, SEGMENT)
    lanes = Continuation(Decoder(model, SEGMENT), [np.insert(tokens, 0, EOD)[:8]], SEGMENT, 1)
    logits_V, found = lanes.first()[0], []
    for token in tokens[7:20]:
        found.append(float(logits_V.log_softmax(-1)[token]))
        logits_V = lanes.following(torch.tensor([token]))[0]
    np.testing.assert_allclose(found, scored.log_probability_P[7:20], atol=FP64_TOLERANCE)


def test_hidden_lines_and_chosen_tokens_are_predicted_after_the_rest_was_read_in_turn() -> None:
    model = small_model(context="causal")
    tokens, line = some_tokens(3, SEGMENT - 1), range(8, 12)
    row = [EOD, *tokens.tolist()]
    hole = range(line.start + 1, line.stop + 1)
    shown, wanted = shown_in_turn(row, hole), []
    for place in hole:
        logits_V = logits_at(model, shown, place, model.empty_memory(1))
        wanted.append(float(logits_V.log_softmax(-1)[row[place]]))
        shown.append((place, len(shown), row[place]))
    (found,) = score_hidden_lines(model, [TextLines(tokens, [line])], EOD, SEGMENT)
    np.testing.assert_allclose(found[line.start : line.stop], wanted, atol=FP64_TOLERANCE)
    chosen = score_chosen(model, tokens, np.array(line), EOD, SEGMENT)
    np.testing.assert_allclose(chosen.log_probability_P, wanted, atol=FP64_TOLERANCE)
    filled = fill_any_order(
        Decoder(model, SEGMENT),
        Sides(np.array(row[: hole.start]), np.array(row[hole.stop :])),
        len(hole),
        GREEDY,
        TokenRules(),
        order="left_to_right",
    )
    rewritten = tokens.copy()
    rewritten[line.start : line.stop] = filled.tokens
    again = score_chosen(model, rewritten, np.array(line), EOD, SEGMENT)
    np.testing.assert_allclose(filled.log_probabilities, again.log_probability_P, atol=FP64_TOLERANCE)


def test_vectors_of_texts_are_read_in_turn() -> None:
    tokens = some_tokens(4, 9)
    vectors = {
        context: embed_texts(small_model(context=context), [tokens], SEGMENT)
        for context in ("causal", "bidirectional")
    }
    assert not np.allclose(vectors["causal"], vectors["bidirectional"])
