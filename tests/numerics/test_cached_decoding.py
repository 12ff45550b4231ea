"""What decoding computes with its cache is what the model computes without one."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.inference.any_order import fill_any_order
from pretrain.inference.continuation import Continuation
from pretrain.inference.hole import Hole, Sides
from pretrain.inference.sampling import GREEDY
from pretrain.inference.session import Decoder
from pretrain.inference.vocabulary import TokenRules
from pretrain.model.config import PositionsConfig
from pretrain.model.memory import SegmentMemory
from pretrain.model.places import Places
from pretrain.model.transformer import TwoStreamTransformer
from tests.small_models import ABSOLUTE, RELATIVE, VOCAB, small_model

FP64_TOLERANCE = 1e-10
SEGMENT = 12


def random_tokens(seed: int, count: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, VOCAB, count)


def row(values: list[int] | NDArray[np.int64]) -> Tensor:
    return torch.tensor(np.asarray(values, dtype=np.int64))[None]


@torch.inference_mode()
def without_cache(
    model: TwoStreamTransformer,
    tokens: NDArray[np.int64],
    rank: list[int],
    position: list[int],
    predicted: list[tuple[int, int]],
    memory: SegmentMemory | None = None,
) -> tuple[Tensor, SegmentMemory]:
    """Logits [P, V] for (position, rank) pairs from the whole text at once; everything is of one group."""
    extent = max(position + [place for place, _ in predicted]) + 1
    content = Places(row(position), row(rank), torch.zeros_like(row(rank)), None, extent)
    places, ranks = row([place for place, _ in predicted]), row([one for _, one in predicted])
    targets = Places(places, ranks, torch.zeros_like(ranks), None, extent)
    output = model(row(tokens), content, targets, memory)
    return output.logits_BPV[0], output.memory


def continued(
    model: TwoStreamTransformer,
    prompts: list[NDArray[np.int64]],
    new: list[NDArray[np.int64]],
    segment_tokens: int = SEGMENT,
) -> Tensor:
    """Logits [B, T, V] of every new token with the cache."""
    text = Continuation(Decoder(model, segment_tokens), prompts, max_new_tokens=len(new[0]))
    new_BT = torch.tensor(np.stack(new))
    logits = [text.first()]
    logits += [text.following(new_BT[:, step]) for step in range(new_BT.shape[1] - 1)]
    return torch.stack(logits, dim=1)


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


@pytest.mark.parametrize("positions", RELATIVE, ids=lambda one: one.kind)
@pytest.mark.parametrize("memory_tokens", [6, 20, 0])
def test_completion_through_segments_and_memory(positions: PositionsConfig, memory_tokens: int) -> None:
    """31 tokens of prompt, 21 new ones, segments of 12: prompt segments, then 6 + 6 tokens, then 12, then 3."""
    model = small_model(positions, memory_tokens=memory_tokens)
    prompt, new = random_tokens(3, 31), random_tokens(4, 21)
    found_TV = continued(model, [prompt], [new])[0]
    text = np.concatenate([prompt, new])
    memory, wanted = None, []
    for first, last, num_context in [
        (0, 1, 1),
        (1, 13, 12),
        (13, 25, 12),
        (25, 37, 6),
        (37, 49, 0),
        (49, 52, 0),
    ]:
        length = last - first
        rank = [0] * num_context + list(range(1, length - num_context + 1))
        predicted = [(place, place - num_context + 1) for place in range(num_context, length)]
        if not predicted:
            predicted = [(0, 0)]
        logits, memory = without_cache(model, text[first:last], rank, list(range(length)), predicted, memory)
        if num_context < length:
            wanted.append(logits)
    torch.testing.assert_close(found_TV, torch.cat(wanted), rtol=0, atol=FP64_TOLERANCE)


@pytest.mark.parametrize("positions", RELATIVE + ABSOLUTE, ids=lambda one: one.kind)
@pytest.mark.parametrize("max_new", [5, 16])
def test_lanes_of_other_lengths_change_nothing(positions: PositionsConfig, max_new: int) -> None:
    model = small_model(positions)
    lengths, segment_tokens = ((9, 1, 30, 4), SEGMENT) if positions in RELATIVE else ((9, 1, 4), 64)
    prompts = [random_tokens(length, length) for length in lengths]
    new = [random_tokens(100 + length, max_new) for length in lengths]
    together_BTV = continued(model, prompts, new, segment_tokens)
    for lane, prompt in enumerate(prompts):
        alone_TV = continued(model, [prompt], [new[lane]], segment_tokens)[0]
        torch.testing.assert_close(together_BTV[lane], alone_TV, rtol=0, atol=FP64_TOLERANCE)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", RELATIVE + ABSOLUTE, ids=lambda one: one.kind)
def test_holes_in_places_of_several_lengths(positions: PositionsConfig, norm: str) -> None:
    """The last prediction of a hole is its end, which stands where no token is."""
    model = small_model(positions, norm)
    prefix, suffix, hole = random_tokens(5, 3), random_tokens(6, 2), random_tokens(7, 4)
    text = Hole(Decoder(model, SEGMENT), Sides(prefix, suffix), [6, 5])
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
    text = Hole(Decoder(model, SEGMENT), Sides(prefix, suffix), [4])
    logits = [text.first()] + [text.following(torch.tensor([token])) for token in hole[:-1]]
    memory = None
    for first, last in [(0, 4), (4, 16)]:
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


def test_a_hole_in_nothing_sees_nothing() -> None:
    model = small_model()
    nothing = np.zeros(0, dtype=np.int64)
    found_V = Hole(Decoder(model, SEGMENT), Sides(nothing, nothing), [3]).first()[0]
    # One token that the prediction does not see: its own rank is no lower.
    wanted_TV, _ = without_cache(model, random_tokens(0, 1), [0], [0], [(0, 0)])
    torch.testing.assert_close(found_V, wanted_TV[0], rtol=0, atol=FP64_TOLERANCE)


def test_segment_encodings_are_nothing_within_one_document() -> None:
    """All keys get the same score more, which the softmax takes out again, so decoding leaves it away."""
    model = small_model(segment_encodings=True)
    prompt, new = random_tokens(1, 5), random_tokens(2, 3)
    found_TV = continued(model, [prompt], [new])[0]
    zeros = row([0] * 8)
    content = Places.in_order(row([0] * 5 + [1, 2, 3]), zeros, zeros)
    with torch.inference_mode():
        output = model(row(np.concatenate([prompt, new])), content, content.at(row([5, 6, 7])))
    torch.testing.assert_close(found_TV, output.logits_BPV[0], rtol=0, atol=FP64_TOLERANCE)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 0.02)])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_lower_precision_stays_close(dtype: torch.dtype, tolerance: float, norm: str) -> None:
    """Relative to the size of the logits, as the uncached model in the same precision would."""
    model = small_model(norm=norm)
    prompt, new = random_tokens(1, 5), random_tokens(2, 6)
    exact_TV = continued(model, [prompt], [new])[0]
    found_TV = continued(model.to(dtype), [prompt], [new])[0].double()
    error = float((found_TV - exact_TV).norm() / exact_TV.norm())
    assert error < tolerance
