"""Lanes are written until they end; a beam finds the most likely text; samples follow the model."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from cluster.errors import UserError
from pretrain.inference.any_order import FillingOrder, fill_any_order
from pretrain.inference.completion import complete_by_beam, complete_tokens
from pretrain.inference.decoder import Decoder
from pretrain.inference.hole import Sides
from pretrain.inference.infilling import HoleRequest, fill_known_length, fill_unknown_length, place_lengths
from pretrain.inference.sampling import GREEDY, Sampling
from pretrain.inference.scoring import score_chosen
from pretrain.inference.token_rules import TokenRules
from pretrain.model.layout import TokenLayout
from pretrain.model.transformer import TwoStreamTransformer
from tests.small_models import ABSOLUTE, small_model

SEGMENT = 16
ANYTHING = TokenRules()


def array(*tokens: int) -> NDArray[np.int64]:
    return np.array(tokens, dtype=np.int64)


@torch.inference_mode()
def log_probabilities(
    model: TwoStreamTransformer, prefix: NDArray[np.int64], hole: tuple[int, ...], suffix: NDArray[np.int64]
) -> Tensor:
    """[T, V] of a hole's tokens left to right, from the whole text at once."""
    rank = [0] * len(prefix) + list(range(1, len(hole) + 1)) + [0] * len(suffix)
    rank_1L = torch.tensor([rank])
    content = TokenLayout.contiguous(rank_1L, torch.zeros_like(rank_1L))
    targets = content.at(torch.arange(len(prefix), len(prefix) + len(hole))[None])
    tokens = torch.tensor(np.concatenate([prefix, array(*hole), suffix]))[None]
    return model(tokens, content, targets).logits_BPV[0].log_softmax(-1)


def likelihood(
    model: TwoStreamTransformer, prompt: NDArray[np.int64], new: tuple[int, ...], suffix: NDArray[np.int64]
) -> float:
    log_TV = log_probabilities(model, prompt, new, suffix)
    return float(log_TV[range(len(new)), list(new)].sum())


NOTHING = array()


def test_greedy_is_the_first_choice_step_by_step() -> None:
    model, prompt = small_model(), array(1, 2, 3)
    found = complete_tokens(Decoder(model, SEGMENT), [prompt], 8, GREEDY, ANYTHING)[0]
    assert not found.ended
    tokens: tuple[int, ...] = ()
    for _ in range(8):
        log_TV = log_probabilities(model, prompt, (*tokens, 0), NOTHING)
        tokens = (*tokens, int(log_TV[-1].argmax()))
    assert found.tokens == tokens
    assert found.log_likelihood == pytest.approx(likelihood(model, prompt, tokens, NOTHING))


def test_a_lane_that_may_not_be_empty_has_a_token() -> None:
    model, prompt = small_model(), array(1, 2, 3)
    decoder = Decoder(model, SEGMENT)
    end = complete_tokens(decoder, [prompt], 1, GREEDY, ANYTHING)[0].tokens[0]
    assert complete_tokens(decoder, [prompt], 8, GREEDY, TokenRules(end=end))[0].tokens == ()
    rules = TokenRules(end=end, may_be_empty=False)
    assert len(complete_tokens(decoder, [prompt], 8, GREEDY, rules)[0].tokens) >= 1
    beam = complete_by_beam(decoder, [prompt], 8, 3, rules)[0]
    assert () not in [one.tokens for one in beam]


@pytest.mark.parametrize("end", [None, 0])
def test_a_greedy_lane_leaves_its_loops(end: int | None) -> None:
    model, prompts = small_model(), [array(1, 2, 3), array(4)]
    decoder = Decoder(model, SEGMENT)
    looping = complete_tokens(decoder, prompts, 60, GREEDY, TokenRules(never=(0,), end=end))
    assert all(find_loop(one.tokens) for one in looping), "the small model must loop, or this tests nothing"
    rules = TokenRules(never=(0,), end=end, max_repeats=2)
    for one in complete_tokens(decoder, prompts, 60, GREEDY, rules):
        assert len(one.tokens) == 60
        assert not find_loop(one.tokens)


def find_loop(tokens: tuple[int, ...]) -> bool:
    """Whether 17 tokens and more than two runs anywhere repeat a run of up to 29."""
    return any(
        all(tokens[start + i] == tokens[start + i + run] for i in range(max(2 * run, 16) + 1 - run))
        for run in range(1, 30)
        for start in range(len(tokens) - max(2 * run, 16))
    )


def test_a_lane_ends_where_it_writes_the_end_and_others_continue() -> None:
    model, prompts = small_model(), [array(1, 2, 3), array(4), array(5, 6)]
    decoder = Decoder(model, SEGMENT)
    free = complete_tokens(decoder, prompts, 8, GREEDY, ANYTHING)
    end = max(free[0].tokens, key=free[0].tokens.index)
    found = complete_tokens(decoder, prompts, 8, GREEDY, TokenRules(end=end))
    for one, unended in zip(found, free, strict=True):
        tokens = unended.tokens
        assert one.ended == (end in tokens)
        assert one.tokens == (tokens[: tokens.index(end)] if one.ended else tokens)
    chosen = (*found[0].tokens, end)
    assert found[0].log_likelihood == pytest.approx(likelihood(model, prompts[0], chosen, NOTHING))


def test_a_watcher_sees_every_token_and_ends_its_lane() -> None:
    decoder = Decoder(small_model(), SEGMENT)
    prompts = [array(1, 2, 3), array(4)]
    free = complete_tokens(decoder, prompts, 6, GREEDY, ANYTHING)
    seen: dict[int, list[int]] = {0: [], 1: []}

    def watch(lane: int, token: int) -> bool:
        seen[lane].append(token)
        return lane == 0 and len(seen[0]) == 2

    found = complete_tokens(decoder, prompts, 6, GREEDY, ANYTHING, watch=watch)
    assert found[0].stopped
    assert found[0].tokens == free[0].tokens[:2]
    assert found[1].tokens == free[1].tokens
    assert tuple(seen[1]) == free[1].tokens


def test_samples_of_a_prompt_differ_and_do_not_depend_on_other_prompts() -> None:
    decoder = Decoder(small_model(), SEGMENT)
    sampling = Sampling(1.0, seed=3)
    prompts = [array(1, 2, 3), array(4)]
    together = complete_tokens(decoder, prompts, 20, sampling, ANYTHING, num_samples=2)
    alone = complete_tokens(decoder, prompts[1:], 20, sampling, ANYTHING, num_samples=1)
    assert together[2].tokens == alone[0].tokens
    assert len({one.tokens for one in together}) == 4


def test_lanes_come_in_the_order_of_their_prompts_wherever_their_segments_end() -> None:
    decoder = Decoder(small_model(), SEGMENT)
    prompts = [
        array(*range(1, 1 + length % 10), *[3] * (length - length % 10)) for length in (3, 40, 9, 3, 17)
    ]
    seen: list[list[int]] = [[] for _ in range(10)]

    def watch(lane: int, token: int) -> bool:
        seen[lane].append(token)
        return False

    sampling = Sampling(1.0)
    found = complete_tokens(decoder, prompts, 10, sampling, ANYTHING, num_samples=2, watch=watch)
    beams = complete_by_beam(decoder, prompts, 10, 2, ANYTHING)
    for number, prompt in enumerate(prompts):
        alone = complete_tokens(decoder, [prompt], 10, sampling, ANYTHING, num_samples=2)
        assert [one.tokens for one in found[2 * number : 2 * number + 2]] == [one.tokens for one in alone]
        assert [tuple(row) for row in seen[2 * number : 2 * number + 2]] == [one.tokens for one in alone]
        beam = complete_by_beam(decoder, [prompt], 10, 2, ANYTHING)[0]
        assert [one.tokens for one in beams[number]] == [one.tokens for one in beam]


def test_a_beam_of_one_is_greedy() -> None:
    decoder = Decoder(small_model(), SEGMENT)
    prompts = [array(1, 2, 3), array(4)]
    end = complete_tokens(decoder, prompts, 8, GREEDY, ANYTHING)[0].tokens[3]
    for rules in (ANYTHING, TokenRules(end=end)):
        greedy = complete_tokens(decoder, prompts, 20, GREEDY, rules)
        beams = complete_by_beam(decoder, prompts, 20, 1, rules)
        assert [row[0].tokens for row in beams] == [one.tokens for one in greedy]
        assert beams[0][0].log_likelihood == pytest.approx(greedy[0].log_likelihood)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_beam_that_holds_everything_finds_the_best_texts_in_order(seed: int) -> None:
    model = small_model(vocab_size=4, seed=seed)
    decoder = Decoder(model, SEGMENT)
    prompt = array(1, 2)
    found = complete_by_beam(decoder, [prompt], 3, 64, ANYTHING)[0]
    wanted = sorted(
        itertools.product(range(4), repeat=3),
        key=lambda tokens: likelihood(model, prompt, tokens, NOTHING),
        reverse=True,
    )
    assert [one.tokens for one in found] == wanted
    greedy = complete_tokens(decoder, [prompt], 3, GREEDY, ANYTHING)[0]
    assert found[0].log_likelihood >= greedy.log_likelihood - 1e-9


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_beam_weighs_texts_of_other_lengths_by_their_mean(seed: int) -> None:
    model = small_model(vocab_size=3, seed=seed)
    prompt, end = array(1, 2), 0
    found = complete_by_beam(Decoder(model, SEGMENT), [prompt], 3, 32, TokenRules(end=end))[0]
    texts = [(*body, end) for count in range(3) for body in itertools.product((1, 2), repeat=count)] + list(
        itertools.product((1, 2), repeat=3)
    )
    mean = {text: likelihood(model, prompt, text, NOTHING) / len(text) for text in texts}
    best = max(texts, key=mean.__getitem__)
    assert (*found[0].tokens, *([end] if found[0].ended else [])) == best
    assert found[0].log_likelihood / len(best) == pytest.approx(mean[best])


def test_beams_of_prompts_of_other_lengths_do_not_mix() -> None:
    decoder = Decoder(small_model(), SEGMENT)
    prompts = [array(1, 2, 3), array(4), array(*range(13), *range(13))]
    together = complete_by_beam(decoder, prompts, 20, 3, ANYTHING)
    for prompt, row in zip(prompts, together, strict=True):
        alone = complete_by_beam(decoder, [prompt], 20, 3, ANYTHING)[0]
        assert [one.tokens for one in row] == [one.tokens for one in alone]


def test_a_hole_of_known_length_has_that_length_and_its_likelihood() -> None:
    model, sides = small_model(), Sides(array(1, 2, 3), array(7, 8))
    found = fill_known_length(
        Decoder(model, SEGMENT), [HoleRequest(sides, 4)], GREEDY, TokenRules(never=(5,), end=0)
    )[0][0]
    assert len(found.tokens) == 4
    assert 5 not in found.tokens
    assert found.log_likelihood == pytest.approx(likelihood(model, sides.prefix, found.tokens, sides.suffix))


@pytest.mark.parametrize("beam", [None, 3])
@pytest.mark.parametrize("strict", [False, True])
def test_a_hole_of_unknown_length_is_ended_within_its_bound(beam: int | None, strict: bool) -> None:
    decoder, sides = Decoder(small_model(), 32), Sides(array(1, 2, 3), array(7, 8))
    rules = TokenRules(never=(5,), end=4)
    if strict:
        rules = replace(rules, may_be_empty=False, max_repeats=2)
    found = fill_unknown_length(
        decoder, [HoleRequest(sides, 11)], GREEDY, rules, num_samples=2 if beam else 1, beam=beam
    )[0]
    for one in found:
        assert one.ended
        assert len(one.tokens) <= 11
        assert not {4, 5} & set(one.tokens)
        assert one.tokens or not strict
    assert place_lengths(11) == [8, 12]
    assert place_lengths(100) == [8, 16, 32, 64, 96, 101]
    assert place_lengths(1) == [2]


def test_a_long_hole_has_no_loops() -> None:
    decoder, sides = Decoder(small_model(), 64), Sides(array(1, 2, 3), array(7, 8))
    rules = TokenRules(never=(4, 5))
    assert find_loop(fill_known_length(decoder, [HoleRequest(sides, 40)], GREEDY, rules)[0][0].tokens)
    for beam in (None, 3):
        (found,) = fill_known_length(
            decoder, [HoleRequest(sides, 40)], GREEDY, replace(rules, max_repeats=2), beam=beam
        )[0]
        assert len(found.tokens) == 40
        assert not find_loop(found.tokens)


def test_the_kept_filling_is_the_most_likely_per_token_of_all_places() -> None:
    decoder, sides = Decoder(small_model(seed=4), 32), Sides(array(1, 2, 3), array(7, 8))
    rules = TokenRules(end=4)
    whole = fill_unknown_length(decoder, [HoleRequest(sides, 12)], GREEDY, rules)[0][0]
    few = fill_unknown_length(decoder, [HoleRequest(sides, 7)], GREEDY, rules)[0][0]  # the place of 8 alone
    mean = [one.log_likelihood / one.num_chosen for one in (whole, few)]
    assert mean[0] >= mean[1] - 1e-9


def test_of_a_filling_found_in_several_places_the_most_likely_is_kept() -> None:
    decoder, sides = Decoder(small_model(vocab_size=3, seed=2), 32), Sides(array(1, 2, 0), array(0, 1))
    rules = TokenRules(end=2)
    whole, few = (
        fill_unknown_length(
            decoder, [HoleRequest(sides, most)], GREEDY, rules, num_samples=20, beam=20, length_power=1.0
        )[0]
        for most in (12, 7)
    )
    likeliest = {one.tokens: one.log_likelihood for one in few}  # of the place of 8 alone
    both = [one for one in whole if one.tokens in likeliest]
    assert len(both) > 10
    assert all(one.log_likelihood >= likeliest[one.tokens] - 1e-9 for one in both)
    mean = [one.log_likelihood / one.num_chosen for one in whole]
    assert mean == sorted(mean, reverse=True)
    assert mean[0] >= few[0].log_likelihood / few[0].num_chosen - 1e-9


def test_several_at_once_are_the_tokens_of_one_at_a_time_when_greedy() -> None:
    decoder, sides = Decoder(small_model(), SEGMENT), Sides(array(1, 2, 3), array(7, 8))
    slow = fill_any_order(decoder, sides, 8, GREEDY, ANYTHING, order="left_to_right")
    for at_once in (2, 3, 8):
        fast = fill_any_order(decoder, sides, 8, GREEDY, ANYTHING, at_once=at_once, order="left_to_right")
        assert fast.tokens == slow.tokens
        assert fast.log_likelihood == pytest.approx(slow.log_likelihood)
    known = fill_known_length(decoder, [HoleRequest(sides, 8)], GREEDY, ANYTHING)[0][0]
    assert slow.tokens == known.tokens
    assert slow.num_passes == 8


def make_dependent(model: TwoStreamTransformer, seed: int) -> None:
    """Give a model weights with which tokens depend on each other, so that independent proposals are often wrong."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=2.0)


@pytest.mark.parametrize("order", ["left_to_right", "most_certain"])
def test_rejected_proposals_leave_no_trace(order: FillingOrder) -> None:
    model, eod = small_model(vocab_size=3, norm="pre"), 0
    make_dependent(model, seed=8)
    prefix, suffix = array(eod, 2, 1), array(1, 2)
    decoder, sides = Decoder(model, 32), Sides(prefix, suffix)
    num_passes = []
    for sample in range(20):
        found = fill_any_order(
            decoder, sides, 9, Sampling(1.0), ANYTHING, at_once=4, order=order, sample=sample
        )
        num_passes.append(found.num_passes)
        text = np.concatenate([prefix, found.tokens, suffix])[1:]
        chosen = np.array(found.order) + len(prefix) - 1
        expected = score_chosen(model, text, chosen, eod, 32).log_likelihood
        assert found.log_likelihood == pytest.approx(expected)
    assert max(num_passes) > min(num_passes) + 1, "proposals were rejected"


@pytest.mark.parametrize("seed", range(8))
def test_no_more_passes_are_needed_than_tokens(seed: int) -> None:
    decoder, sides = Decoder(small_model(seed=seed), 32), Sides(array(1, 2, 3), array(7, 8))
    for at_once, sampling in itertools.product(
        (1, 2, 5, 20), (GREEDY, Sampling(1.0, seed=seed), Sampling(0.3))
    ):
        found = fill_any_order(
            decoder, sides, 11, sampling, ANYTHING, at_once=at_once, order="left_to_right", sample=seed
        )
        assert found.order == tuple(range(11))
        assert found.num_passes <= 11
        if at_once == 1:
            assert found.num_passes == 11
        # Of what was chosen, the likelihood is that of one token at a time, whatever was proposed and erased.
        assert found.log_likelihood == pytest.approx(
            likelihood(decoder.model, sides.prefix, found.tokens, sides.suffix)
        )


@pytest.mark.parametrize(
    ("at_once", "sampling"),
    [
        (1, Sampling(1.0)),
        (2, Sampling(1.0)),
        (3, Sampling(1.0)),
        (3, Sampling(0.6)),
        (3, Sampling(1.0, top_k=2)),
        (3, Sampling(0.8, top_p=0.7)),
    ],
)
def test_verified_samples_follow_the_distribution_of_one_at_a_time(at_once: int, sampling: Sampling) -> None:
    """Chi-squared over all 27 fillings, enumerated; the model's own order is left to right."""
    num_samples, vocab_size = 800, 3
    model, sides = small_model(vocab_size=vocab_size, norm="pre"), Sides(array(1, 2), array(0))
    make_dependent(model, seed=8)
    decoder = Decoder(model, SEGMENT)
    counts = dict.fromkeys(itertools.product(range(vocab_size), repeat=3), 0)
    for sample in range(num_samples):
        found = fill_any_order(
            decoder, sides, 3, sampling, ANYTHING, at_once=at_once, order="left_to_right", sample=sample
        )
        counts[found.tokens] += 1
    expected = {}
    for tokens in counts:
        log_TV = log_probabilities(model, sides.prefix, tokens, sides.suffix)
        probability_TV = sampling.probabilities(log_TV)
        expected[tokens] = num_samples * float(probability_TV[range(3), list(tokens)].prod())
        assert expected[tokens] or not counts[tokens]
    assert sum(expected.values()) == pytest.approx(num_samples)
    # Rare fillings are counted together.
    cells = [(counts[one], expected[one]) for one in counts if expected[one] >= 5]
    rest = (num_samples - sum(one[0] for one in cells), num_samples - sum(one[1] for one in cells))
    statistic = sum((seen - want) ** 2 / want for seen, want in [*cells, rest] if want > 0.5)
    # 99.9% point of chi-squared (Wilson and Hilferty); the draws are keyed, so the test always ends alike.
    freedom = len(cells)
    assert statistic < freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3


def test_what_cannot_be_done_is_said() -> None:
    decoder = Decoder(small_model(), SEGMENT)
    with pytest.raises(UserError, match="prompt is empty"):
        complete_tokens(decoder, [array()], 4, GREEDY, ANYTHING)
    with pytest.raises(UserError, match="at least 1, got 0"):
        complete_tokens(decoder, [array(1)], 0, GREEDY, ANYTHING)
    with pytest.raises(UserError, match="does not fit the model's segments of 16"):
        fill_known_length(decoder, [HoleRequest(Sides(array(1), array()), 16)], GREEDY, ANYTHING)
    # Learned positions have a table of 64, of which training reaches a segment's 16.
    for positions in ABSOLUTE:
        placed = Decoder(small_model(positions), SEGMENT)
        with pytest.raises(UserError, match="can place 16"):
            complete_tokens(placed, [array(*[1] * 12)], 5, GREEDY, ANYTHING)
        long = Sides(array(*[1] * 6), array(*[1] * 6))
        with pytest.raises(UserError, match="can place 16"):
            fill_known_length(placed, [HoleRequest(long, 5)], GREEDY, ANYTHING)


def test_what_is_too_much_is_refused_before_anything_is_made_for_it() -> None:
    """A list or a tensor for so many tokens would not fit any memory."""
    decoder, sides = Decoder(small_model(), SEGMENT), Sides(array(1), array(2))
    sampling, rules, too_many = Sampling(1.0), TokenRules(end=4), 10**15
    with pytest.raises(UserError, match="new tokens must be at most 1048576, got 1000000000000000"):
        complete_tokens(decoder, [array(1)], too_many, sampling, rules)
    with pytest.raises(UserError, match="at most 1048576"):
        complete_by_beam(decoder, [array(1)], too_many, 2, rules)
    for fill in (fill_known_length, fill_unknown_length):
        with pytest.raises(UserError, match="does not fit the model's segments of 16"):
            fill(decoder, [HoleRequest(sides, 1), HoleRequest(sides, too_many)], sampling, rules)
    with pytest.raises(UserError, match="does not fit the model's segments of 16"):
        fill_any_order(decoder, sides, too_many, sampling, rules)


def test_samples_are_the_same_in_several_batches() -> None:
    decoder, sampling = Decoder(small_model(), SEGMENT), Sampling(1.0)
    whole = complete_tokens(decoder, [array(1), array(2)], 5, sampling, ANYTHING, num_samples=3)
    later = complete_tokens(
        decoder, [array(1), array(2)], 5, sampling, ANYTHING, num_samples=2, first_sample=1
    )
    same = [whole[1], whole[2], whole[4], whole[5]]
    # Sums over several lanes may be made in another order.
    assert [replace(one, log_likelihood=0.0) for one in later] == [
        replace(one, log_likelihood=0.0) for one in same
    ]
    assert [one.log_likelihood for one in later] == pytest.approx(
        [one.log_likelihood for one in same], rel=1e-12
    )


def test_tables_of_distances_are_made_once_and_change_nothing_for_later_texts() -> None:
    decoder, prompt = Decoder(small_model(), SEGMENT), array(1, 2, 3)
    assert decoder.distance_tables(9) is decoder.distance_tables(16)
    assert decoder.distance_tables(17) is not decoder.distance_tables(16)
    (alone,) = complete_tokens(Decoder(small_model(), SEGMENT), [prompt], 6, GREEDY, ANYTHING)
    complete_tokens(decoder, [prompt], 30, GREEDY, ANYTHING)
    assert complete_tokens(decoder, [prompt], 6, GREEDY, ANYTHING) == [alone]


def test_texts_that_do_not_fit_into_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, prompt = Decoder(small_model(), SEGMENT), array(1, 2, 3)
    config = decoder.model.config
    # Two lanes of eleven columns, keys and values, and a table of distances for sixteen, in every layer.
    rows = 2 * 2 * 11 + 2 * 16
    needed_bytes = rows * config.num_layers * config.model_dim * torch.finfo(decoder.model.dtype).bits // 8
    monkeypatch.setattr("cluster.memory.free_bytes", lambda device: needed_bytes)
    complete_by_beam(decoder, [prompt], 8, 2, ANYTHING)
    monkeypatch.setattr("cluster.memory.free_bytes", lambda device: needed_bytes - 1)
    with pytest.raises(UserError, match="writing 2 texts of up to 11 tokens side by side takes"):
        complete_by_beam(decoder, [prompt], 8, 2, ANYTHING)
    monkeypatch.setattr("cluster.memory.free_bytes", lambda device: 0)
    with pytest.raises(UserError, match=r"write fewer at a time \(batch, beam, samples\)"):
        fill_unknown_length(decoder, [HoleRequest(Sides(prompt, prompt), 4)], GREEDY, TokenRules(end=4))
