"""What decoding computes with its cache is what the model computes without one."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pretrain.inference.any_order import fill_any_order
from pretrain.inference.completion import Continuation, complete_by_beam
from pretrain.inference.decoder import Decoder
from pretrain.inference.hole import Hole, Holes, Sides
from pretrain.inference.sampling import GREEDY
from pretrain.inference.token_rules import TokenRules
from pretrain.model.config import ModelConfig, PositionsConfig
from pretrain.model.transformer import TwoStreamTransformer
from tests.numerics.decoding_ways import (
    FP64_TOLERANCE,
    SEGMENT,
    Part,
    behind_eod,
    continued,
    in_segments,
    random_tokens,
    without_cache,
)
from tests.small_models import ABSOLUTE, RELATIVE, VOCAB, small_model


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", RELATIVE + ABSOLUTE, ids=lambda one: one.kind)
def test_completion_within_a_segment(positions: PositionsConfig, norm: str) -> None:
    model = small_model(positions, norm, activation="swiglu" if norm == "pre" else "gelu")
    prompt, new = random_tokens(1, 5), random_tokens(2, 6)
    found_TV = continued(model, [prompt], [new])[0]
    rank = [0] * 5 + list(range(1, 7))
    wanted_TV, _ = without_cache(
        model,
        np.concatenate([prompt, new]),
        rank,
        list(range(11)),
        [(5 + step, 1 + step) for step in range(6)],
    )
    torch.testing.assert_close(found_TV, wanted_TV, rtol=0, atol=FP64_TOLERANCE)


LONG_PROMPT = [(0, 1, 1), (1, 13, 12), (13, 25, 12)]
ROLL_OVERS: list[tuple[int, int, int, list[Part]]] = [
    # prompt, new tokens, memory, segments
    (31, 21, 6, [*LONG_PROMPT, (25, 37, 6), (37, 49, 0), (49, 52, 0)]),
    (31, 21, 20, [*LONG_PROMPT, (25, 37, 6), (37, 49, 0), (49, 52, 0)]),
    (31, 21, 3, [*LONG_PROMPT, (25, 37, 6), (31, 43, 6), (37, 49, 6), (43, 52, 6)]),
    (31, 21, 0, [*LONG_PROMPT, (25, 37, 6), (31, 43, 6), (37, 49, 6), (43, 52, 6)]),
    (12, 8, 6, [(0, 6, 6), (6, 18, 6), (18, 20, 0)]),
    (5, 7, 6, [(0, 12, 5)]),
    (5, 20, 6, [(0, 12, 5), (12, 24, 0), (24, 25, 0)]),
    (11, 20, 30, [(0, 12, 11), (12, 24, 0), (24, 31, 0)]),
    (5, 20, 2, [(0, 12, 5), (6, 18, 6), (12, 24, 6), (18, 25, 6)]),
    (5, 20, 0, [(0, 12, 5), (6, 18, 6), (12, 24, 6), (18, 25, 6)]),
]


@pytest.mark.parametrize("positions", RELATIVE, ids=lambda one: one.kind)
@pytest.mark.parametrize(("num_prompt", "num_new", "memory_tokens", "parts"), ROLL_OVERS)
def test_completion_through_segments_and_memory(
    positions: PositionsConfig, num_prompt: int, num_new: int, memory_tokens: int, parts: list[Part]
) -> None:
    """Segments of 12. A full one is memory, or, with little memory, half of it is read again."""
    model = small_model(positions, memory_tokens=memory_tokens)
    prompt, new = random_tokens(3, num_prompt), random_tokens(4, num_new)
    found_TV = continued(model, [prompt], [new])[0]
    wanted_TV = in_segments(model, np.concatenate([prompt, new]), parts)
    torch.testing.assert_close(found_TV, wanted_TV, rtol=0, atol=FP64_TOLERANCE)


@pytest.mark.parametrize("positions", RELATIVE, ids=lambda one: one.kind)
@pytest.mark.parametrize("memory_tokens", [0, 1, 3, 20])
@pytest.mark.parametrize("num_prompt", [1, 5])
def test_completion_in_segments_of_one_token(
    positions: PositionsConfig, memory_tokens: int, num_prompt: int
) -> None:
    model = small_model(positions, memory_tokens=memory_tokens)
    prompt, new = random_tokens(3, num_prompt), random_tokens(4, 7)
    parts = [(place, place + 1, int(place < num_prompt)) for place in range(num_prompt + 7)]
    wanted_TV = in_segments(model, np.concatenate([prompt, new]), parts)
    found_TV = continued(model, [prompt], [new], segment_tokens=1)[0]
    torch.testing.assert_close(found_TV, wanted_TV, rtol=0, atol=FP64_TOLERANCE)
    complete_by_beam(Decoder(model, 1), [prompt], 7, 3, TokenRules())


@pytest.mark.parametrize("memory_tokens", [0, 3, 6, 20])
@pytest.mark.parametrize("num_prompt", [1, 7, 11, 12, 30])
def test_fewer_tokens_are_the_first_of_more(memory_tokens: int, num_prompt: int) -> None:
    model = small_model(memory_tokens=memory_tokens)
    prompt, new = random_tokens(3, num_prompt), random_tokens(4, 30)
    most_TV = continued(model, [prompt], [new])[0]
    for count in (1, 5, 6, 7, 20):
        fewer_TV = continued(model, [prompt], [new[:count]])[0]
        torch.testing.assert_close(fewer_TV, most_TV[:count], rtol=0, atol=FP64_TOLERANCE)


@pytest.mark.parametrize("memory_tokens", [0, 3, 6, 14, 40])
@pytest.mark.parametrize("num_prompt", [3, 30])
def test_a_beams_likelihoods_are_those_of_its_texts(memory_tokens: int, num_prompt: int) -> None:
    """Hypotheses change lanes before, at and behind the end of a segment."""
    model = small_model(memory_tokens=memory_tokens)
    prompt = random_tokens(3, num_prompt)
    for found in complete_by_beam(Decoder(model, SEGMENT), [prompt], 30, 4, TokenRules())[0]:
        new = np.array(found.tokens)
        log_TV = continued(model, [prompt], [new])[0].log_softmax(dim=-1)
        wanted = float(log_TV[range(len(new)), new].sum())
        assert found.log_likelihood == pytest.approx(wanted, abs=FP64_TOLERANCE)


@pytest.mark.parametrize("positions", RELATIVE + ABSOLUTE, ids=lambda one: one.kind)
def test_lanes_of_other_lengths_change_nothing(positions: PositionsConfig) -> None:
    model = small_model(positions)
    prompts = [random_tokens(length, length) for length in (5, 1, 3)]
    new = [random_tokens(100 + length, 7) for length in (5, 1, 3)]
    assert_as_alone(model, prompts, new)


@pytest.mark.parametrize("positions", RELATIVE, ids=lambda one: one.kind)
@pytest.mark.parametrize("memory_tokens", [2, 6, 40])
def test_lanes_of_other_lengths_change_nothing_through_segments(
    positions: PositionsConfig, memory_tokens: int
) -> None:
    model = small_model(positions, memory_tokens=memory_tokens)
    prompts = [random_tokens(length, length) for length in (12, 40, 17)]
    assert_as_alone(model, prompts, [random_tokens(100 + lane, 20) for lane in range(3)])


def assert_as_alone(
    model: TwoStreamTransformer, prompts: list[NDArray[np.int64]], new: list[NDArray[np.int64]]
) -> None:
    together_BTV = continued(model, prompts, new)
    for lane, prompt in enumerate(prompts):
        alone_TV = continued(model, [prompt], [new[lane]])[0]
        torch.testing.assert_close(together_BTV[lane], alone_TV, rtol=0, atol=FP64_TOLERANCE)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", RELATIVE + ABSOLUTE, ids=lambda one: one.kind)
def test_holes_in_places_of_several_lengths(positions: PositionsConfig, norm: str) -> None:
    """The last prediction of a hole is its end, which stands where no token is."""
    model = small_model(positions, norm)
    prefix, suffix, hole = random_tokens(5, 3), random_tokens(6, 2), random_tokens(7, 4)
    text = Holes(Decoder(model, SEGMENT), [Hole(Sides(prefix, suffix), [6, 5])])
    logits = [text.first()] + [text.following(torch.tensor([token, token])) for token in hole]
    found_BTV = torch.stack(logits, dim=1)
    for lane, place in enumerate((6, 5)):
        after = [3 + place, 4 + place]
        wanted_TV, _ = without_cache(
            model,
            np.concatenate([prefix, suffix, hole]),
            [0] * 5 + [1, 2, 3, 4],
            [0, 1, 2, *after, 3, 4, 5, 6],
            [(3 + step, 1 + step) for step in range(5)],
        )
        torch.testing.assert_close(found_BTV[lane], wanted_TV, rtol=0, atol=FP64_TOLERANCE)


@pytest.mark.parametrize("positions", RELATIVE, ids=lambda one: one.kind)
def test_a_hole_in_a_long_text_sees_the_memory_of_what_is_before(positions: PositionsConfig) -> None:
    model = small_model(positions)
    prefix, suffix, hole = random_tokens(8, 20), random_tokens(9, 20), random_tokens(10, 4)
    text = Holes(Decoder(model, SEGMENT), [Hole(Sides(prefix, suffix), [4])])
    logits = [text.first()] + [text.following(torch.tensor([token])) for token in hole[:-1]]
    memory = None
    for first, last in [(0, SEGMENT), (SEGMENT, 16)]:
        length = last - first
        _, memory = without_cache(
            model, prefix[first:last], [0] * length, list(range(length)), [(0, 0)], memory
        )
    wanted_TV, _ = without_cache(
        model,
        np.concatenate([prefix[16:], hole, suffix[:4]]),
        [0] * 4 + [1, 2, 3, 4] + [0] * 4,
        list(range(12)),
        [(4 + step, 1 + step) for step in range(4)],
        memory,
    )
    torch.testing.assert_close(torch.cat(logits), wanted_TV, rtol=0, atol=FP64_TOLERANCE)


@pytest.mark.parametrize("memory_tokens", [2, 6, 30])
@pytest.mark.parametrize("positions", RELATIVE, ids=lambda one: one.kind)
def test_text_that_cannot_reach_the_memory_need_not_be_read(
    positions: PositionsConfig, memory_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = Decoder(small_model(positions, memory_tokens=memory_tokens), SEGMENT)
    prefix, suffix = random_tokens(8, 400), random_tokens(9, 20)
    near = prefix.copy()
    near[: 400 - (decoder.reach_segments + 2) * SEGMENT] = 0
    assert not np.array_equal(near, prefix)

    def logits(text: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        hole = Holes(decoder, [Hole(Sides(text, suffix), [4])]).first()
        return hole, Continuation(decoder, [text], 3).first()

    found = logits(prefix)
    assert all(map(torch.equal, found, logits(near)))
    monkeypatch.setattr(Decoder, "reach_segments", 1000)
    torch.testing.assert_close(found, logits(prefix), rtol=0, atol=FP64_TOLERANCE)
    # The bound is not far too high: one layer's reach less is not enough.
    monkeypatch.setattr(Decoder, "reach_segments", max(0, memory_tokens // SEGMENT))
    if memory_tokens > 2:
        assert not torch.allclose(found[0], logits(prefix)[0], rtol=0, atol=FP64_TOLERANCE)


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("positions", RELATIVE + ABSOLUTE, ids=lambda one: one.kind)
def test_any_order_tells_the_likelihood_of_its_order(positions: PositionsConfig, at_once: int) -> None:
    model = small_model(positions)
    prefix, suffix = random_tokens(11, 2), random_tokens(12, 3)
    decoder = Decoder(model, SEGMENT)
    filling = fill_any_order(decoder, Sides(prefix, suffix), 6, GREEDY, TokenRules(), at_once=at_once)
    assert sorted(filling.order) == list(range(6))
    rank_of = {place: 1 + number for number, place in enumerate(filling.order)}
    rank = [0, 0, *(rank_of[place] for place in range(6)), 0, 0, 0]
    logits_TV, _ = without_cache(
        model,
        np.concatenate([prefix, filling.tokens, suffix]),
        rank,
        list(range(11)),
        [(2 + place, rank_of[place]) for place in range(6)],
    )
    assert logits_TV.argmax(dim=-1).tolist() == list(filling.tokens)
    log_TV = logits_TV.log_softmax(dim=-1)
    wanted = sum(float(log_TV[place, token]) for place, token in enumerate(filling.tokens))
    assert filling.log_likelihood == pytest.approx(wanted, abs=FP64_TOLERANCE)


@pytest.mark.parametrize("positions", RELATIVE + ABSOLUTE, ids=lambda one: one.kind)
def test_lanes_that_continue_alone_do_not_change(positions: PositionsConfig) -> None:
    """Through the end of a segment where positions allow it."""
    num_new = 5 if positions in ABSOLUTE else 20
    decoder = Decoder(small_model(positions, memory_tokens=0 if positions in ABSOLUTE else 4), SEGMENT)
    prompts = [random_tokens(40 + lane, 3 + (lane if num_new == 5 else 0)) for lane in range(4)]
    tokens_BT = torch.tensor(np.stack([random_tokens(50 + lane, num_new) for lane in range(4)]))
    together, alone = (Continuation(decoder, prompts, num_new) for _ in range(2))
    for text in (together, alone):
        text.first()
        text.following(tokens_BT[:, 0])
    kept = torch.tensor([1, 3])
    alone.retain(kept)
    for token_B in tokens_BT.T[1:-1]:
        wanted_XV = together.following(token_B)[kept]
        torch.testing.assert_close(alone.following(token_B[kept]), wanted_XV, rtol=0, atol=FP64_TOLERANCE)


@pytest.mark.parametrize("positions", RELATIVE + ABSOLUTE, ids=lambda one: one.kind)
def test_places_that_continue_alone_do_not_change(positions: PositionsConfig) -> None:
    sides = Sides(random_tokens(60, 2), random_tokens(61, 3))
    tokens_BT = torch.tensor(np.stack([random_tokens(62 + lane, 5) for lane in range(3)]))
    together, alone = (
        Holes(Decoder(small_model(positions), SEGMENT), [Hole(sides, [3, 5, 6])]) for _ in range(2)
    )
    kept = torch.tensor([2, 1])
    together.first()
    alone.first()
    alone.retain(kept)
    for token_B in tokens_BT.T:
        wanted_XV = together.following(token_B)[kept]
        torch.testing.assert_close(alone.following(token_B[kept]), wanted_XV, rtol=0, atol=FP64_TOLERANCE)


def test_a_hole_in_nothing_sees_nothing() -> None:
    model = small_model()
    nothing = np.zeros(0, dtype=np.int64)
    found_V = Holes(Decoder(model, SEGMENT), [Hole(Sides(nothing, nothing), [3])]).first()[0]
    # One token that the prediction does not see: its own rank is no lower.
    wanted_TV, _ = without_cache(model, random_tokens(0, 1), [0], [0], [(0, 0)])
    torch.testing.assert_close(found_V, wanted_TV[0], rtol=0, atol=FP64_TOLERANCE)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 0.02)])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_lower_precision_stays_close(dtype: torch.dtype, tolerance: float, norm: str) -> None:
    """Relative to the size of the logits, as the uncached model in the same precision would."""
    model = small_model(norm=norm, segment_encodings=True)
    prompt, new = random_tokens(1, 5), random_tokens(2, 6)
    exact_TV = continued(model, [prompt], [new])[0]
    found_TV = continued(model.to(dtype), [prompt], [new])[0].double()
    error = float((found_TV - exact_TV).norm() / exact_TV.norm())
    assert error < tolerance


@pytest.mark.parametrize("memory_tokens", [0, 6, 20])
def test_compiled_layers_stay_close_through_segments_and_lanes(memory_tokens: int) -> None:
    """A model wide enough for them; in float64 no layer is compiled."""
    config = ModelConfig(
        num_layers=2,
        model_dim=32,
        num_heads=2,
        head_dim=16,
        ffn_dim=32,
        memory_tokens=memory_tokens,
        segment_encodings=True,
    )
    torch.manual_seed(0)
    model = TwoStreamTransformer(config, VOCAB).eval()
    assert Decoder(model, SEGMENT).fused_layers is not None
    prompts = [behind_eod(random_tokens(lane, 6)) for lane in range(2)]
    new = [random_tokens(10 + lane, 18) for lane in range(2)]
    found_BTV = continued(model, prompts, new).double()
    exact_BTV = continued(model.double(), prompts, new)
    assert float((found_BTV - exact_BTV).norm() / exact_BTV.norm()) < 1e-5
