"""Cached decoding of models that tell documents apart: every text begins with the <eod> of the one before it."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.inference.any_order import fill_any_order
from pretrain.inference.completion import complete_by_beam, complete_tokens
from pretrain.inference.decoder import Decoder
from pretrain.inference.hole import Hole, Holes, Sides
from pretrain.inference.infilling import HoleRequest, fill_known_length
from pretrain.inference.sampling import GREEDY
from pretrain.inference.scoring import score_chosen
from pretrain.inference.token_rules import TokenRules
from pretrain.model.config import PositionsConfig
from pretrain.model.layout import TokenLayout
from pretrain.model.transformer import TwoStreamTransformer
from tests.numerics.decoding_ways import (
    EOD,
    FP64_TOLERANCE,
    SEGMENT,
    Part,
    behind_eod,
    continued,
    in_segments,
    random_tokens,
    row,
)
from tests.small_models import ABSOLUTE, RELATIVE, VOCAB, small_model


@pytest.mark.parametrize("positions", RELATIVE + ABSOLUTE, ids=lambda one: one.kind)
@pytest.mark.parametrize("lengths", [(0,), (0, 3)])
def test_completions_are_as_likely_as_they_score_with_segment_encodings(
    positions: PositionsConfig, lengths: tuple[int, ...]
) -> None:
    model = small_model(positions, segment_encodings=True)
    prompts = [random_tokens(20 + length, length) % (VOCAB - 2) + 2 for length in lengths]
    decoder, rules = Decoder(model, SEGMENT), TokenRules(never=(EOD,))
    found = complete_tokens(decoder, [behind_eod(prompt) for prompt in prompts], 6, GREEDY, rules)
    beams = complete_by_beam(decoder, [behind_eod(prompt) for prompt in prompts], 6, 3, rules)
    for prompt, one, beam in zip(prompts, found, beams, strict=True):
        for generated in (one, *beam):
            text = np.concatenate([prompt, generated.tokens]).astype(np.int64)
            order = np.arange(len(prompt), len(text))
            scored = score_chosen(model, text, order, EOD, SEGMENT)
            assert generated.log_likelihood == pytest.approx(scored.log_likelihood, abs=FP64_TOLERANCE)


@pytest.mark.parametrize("positions", RELATIVE + ABSOLUTE, ids=lambda one: one.kind)
def test_fillings_are_as_likely_as_they_score_with_segment_encodings(
    positions: PositionsConfig,
) -> None:
    model = small_model(positions, segment_encodings=True)
    prefix, suffix = (random_tokens(seed, 3) % (VOCAB - 2) + 2 for seed in (31, 32))
    decoder, rules, sides = (
        Decoder(model, SEGMENT),
        TokenRules(never=(EOD,)),
        Sides(behind_eod(prefix), suffix),
    )
    known = fill_known_length(decoder, [HoleRequest(sides, 4)], GREEDY, rules)[0][0]
    surest = fill_any_order(decoder, sides, 4, GREEDY, rules, at_once=2)
    for tokens, log_likelihood, order in (
        (known.tokens, known.log_likelihood, range(4)),
        (surest.tokens, surest.log_likelihood, surest.order),
    ):
        text = np.concatenate([prefix, tokens, suffix]).astype(np.int64)
        scored = score_chosen(model, text, 3 + np.array(order), EOD, SEGMENT)
        assert log_likelihood == pytest.approx(scored.log_likelihood, abs=FP64_TOLERANCE)


@torch.inference_mode()
def with_documents(
    model: TwoStreamTransformer, tokens: NDArray[np.int64], rank: list[int], predicted: list[int]
) -> Tensor:
    """Logits [P, V] of a text that fits a segment; its first token is of another document."""
    document = row([0] + [1] * (len(tokens) - 1))
    content = TokenLayout.contiguous(row(rank), torch.zeros_like(document), document)
    return model(row(tokens), content, content.at(row(predicted))).logits_BPV[0]


@pytest.mark.parametrize("positions", RELATIVE + ABSOLUTE, ids=lambda one: one.kind)
def test_the_eod_after_a_text_belongs_to_the_text(positions: PositionsConfig) -> None:
    model = small_model(positions, segment_encodings=True)
    prefix, suffix, hole = behind_eod(random_tokens(33, 2)), np.array([5, EOD]), random_tokens(34, 4)
    text = Holes(Decoder(model, SEGMENT), [Hole(Sides(prefix, suffix), [4])])
    found = [text.first()] + [text.following(torch.tensor([token])) for token in hole[:-1]]
    wanted_TV = with_documents(
        model, np.concatenate([prefix, hole, suffix]), [0, 0, 0, 1, 2, 3, 4, 0, 0], [3, 4, 5, 6]
    )
    torch.testing.assert_close(torch.cat(found), wanted_TV, rtol=0, atol=FP64_TOLERANCE)


@pytest.mark.parametrize("positions", RELATIVE, ids=lambda one: one.kind)
@pytest.mark.parametrize(("memory_tokens", "num_prompt"), [(20, 3), (20, 18), (10, 18), (3, 18)])
def test_memory_keeps_which_document_a_token_is_of(
    positions: PositionsConfig, memory_tokens: int, num_prompt: int
) -> None:
    """The first token stays in sight through one or several ends of segments, or drops out."""
    model = small_model(positions, memory_tokens=memory_tokens, segment_encodings=True)
    prompt, new = behind_eod(random_tokens(35, num_prompt - 1)), random_tokens(36, 20)
    found_TV = continued(model, [prompt], [new])[0]
    parts: list[Part] = {
        (20, 3): [(0, 12, 3), (12, 23, 0)],
        (20, 18): [(0, 12, 12), (12, 24, 6), (24, 36, 0), (36, 38, 0)],
        (10, 18): [(0, 12, 12), (12, 24, 6), (24, 36, 0), (36, 38, 0)],
        (3, 18): [(0, 12, 12), (12, 24, 6), (18, 30, 6), (24, 36, 6), (30, 38, 6)],
    }[memory_tokens, num_prompt]
    wanted_TV = in_segments(model, np.concatenate([prompt, new]), parts, eod_first=True)
    torch.testing.assert_close(found_TV, wanted_TV, rtol=0, atol=FP64_TOLERANCE)
