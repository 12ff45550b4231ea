"""Tokens are drawn from the distribution that was asked for, and from nothing else."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import UserError
from pretrain.inference.sampling import GREEDY, Sampling, pick, uniforms
from pretrain.inference.token_rules import TokenRules

logits = st.lists(st.floats(-20, 20), min_size=2, max_size=12).map(
    lambda row: torch.tensor([row], dtype=torch.float64)
)


@settings(max_examples=60, deadline=None)
@given(logits, st.integers(1, 14))
def test_top_k_keeps_the_k_most_likely_in_their_proportions(logits_1V: torch.Tensor, top_k: int) -> None:
    full_V = logits_1V[0].softmax(-1)
    cut_V = Sampling(1.0, top_k=top_k).probabilities(logits_1V)[0]
    kept = cut_V > 0
    assert kept.sum() <= top_k
    assert full_V[kept].min() >= full_V[~kept].max() if bool((~kept).any()) else True
    torch.testing.assert_close(cut_V[kept], full_V[kept] / full_V[kept].sum())


@settings(max_examples=60, deadline=None)
@given(logits, st.floats(0.01, 1.0))
def test_top_p_keeps_the_fewest_that_hold_p(logits_1V: torch.Tensor, top_p: float) -> None:
    full_V = logits_1V[0].softmax(-1)
    cut_V = Sampling(1.0, top_p=top_p).probabilities(logits_1V)[0]
    kept = cut_V > 0
    sorted_V = full_V.sort(descending=True).values
    assert float(sorted_V[: int(kept.sum())].sum()) >= top_p - 1e-9
    assert float(sorted_V[: int(kept.sum()) - 1].sum()) < top_p
    torch.testing.assert_close(cut_V[kept], full_V[kept] / full_V[kept].sum())


@settings(max_examples=60, deadline=None)
@given(logits, st.floats(0, 1, exclude_max=True))
def test_only_possible_tokens_are_drawn(logits_1V: torch.Tensor, uniform: float) -> None:
    sampling = Sampling(0.7, top_k=3, top_p=0.8)
    token = int(sampling.choose(logits_1V, torch.tensor([uniform], dtype=torch.float64))[0])
    assert sampling.probabilities(logits_1V)[0, token] > 0


@settings(max_examples=40, deadline=None)
@given(logits)
def test_greedy_is_the_most_likely_token(logits_1V: torch.Tensor) -> None:
    assert int(GREEDY.choose(logits_1V, None)[0]) == int(logits_1V.argmax())
    assert int(GREEDY.probabilities(logits_1V).argmax()) == int(logits_1V.argmax())


def test_uniform_numbers_draw_in_proportion() -> None:
    probability_V = torch.tensor([0.1, 0.0, 0.6, 0.3], dtype=torch.float64)
    uniform_X = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    counts = torch.bincount(pick(probability_V.expand(1000, -1), uniform_X), minlength=4)
    assert counts.tolist() == [100, 0, 600, 300]


def test_the_draws_of_a_lane_depend_on_its_context_seed_and_number_only() -> None:
    context, other = np.array([1, 2, 3]), np.array([1, 2, 4])
    first = uniforms(0, context, 0, 5)
    assert torch.equal(first, uniforms(0, context, 0, 9)[:5])
    for changed in (uniforms(1, context, 0, 5), uniforms(0, other, 0, 5), uniforms(0, context, 1, 5)):
        assert not torch.equal(first, changed)


def test_tokens_that_may_not_be_written_are_never_chosen() -> None:
    allowed = TokenRules(never=(0, 2)).allow(torch.tensor([[9.0, 1.0, 8.0, 2.0]]))
    probability = Sampling(1.0).probabilities(allowed)[0]
    assert probability[[0, 2]].tolist() == [0, 0]
    assert int(GREEDY.choose(allowed, None)[0]) == 3


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match="must be"):
        Sampling(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [1e-37, 1e-38, 1e-45, 5e-324])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_smallest_temperatures_take_the_most_likely_token(temperature: float, dtype: torch.dtype) -> None:
    logits_1V = torch.tensor([[-3.0, 40.0, 7.0, -torch.inf]], dtype=dtype)
    for sampling in (Sampling(temperature), Sampling(temperature, top_k=2, top_p=0.9)):
        assert sampling.probabilities(logits_1V)[0].tolist() == [0, 1, 0, 0]
        assert int(sampling.choose(logits_1V, torch.tensor([0.99]))[0]) == 1


@pytest.mark.parametrize("temperature", [3.4e38, 3.5e38, 1e300])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_largest_temperatures_draw_evenly_from_what_may_be_written(
    temperature: float, dtype: torch.dtype
) -> None:
    logits_1V = torch.tensor([[-3.0, 40.0, -torch.inf]], dtype=dtype)
    for sampling in (Sampling(temperature), Sampling(temperature, top_k=2, top_p=0.9)):
        assert sampling.probabilities(logits_1V)[0].tolist() == [0.5, 0.5, 0]
        assert int(sampling.choose(logits_1V, torch.tensor([0.99]))[0]) == 1
