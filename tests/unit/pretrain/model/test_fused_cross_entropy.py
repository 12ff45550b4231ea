"""The fused cross entropy against PyTorch's own in float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from pretrain.model.fused.cross_entropy import cross_entropy_fusable, fused_cross_entropy
from pretrain.model.fused.operators import load_operators
from tests.rounding import OTHER_ROUNDINGS, assert_rounded


@pytest.fixture(autouse=True, scope="module")
def _operators() -> None:
    assert load_operators() is None


def loss_and_gradient(logits: Tensor, wanted: Tensor, function) -> tuple[Tensor, Tensor]:
    logits = logits.clone().requires_grad_()
    loss = function(logits, wanted)
    (3 * loss).backward()
    assert logits.grad is not None
    return loss.detach(), logits.grad


@settings(max_examples=50, deadline=None)
@given(
    rows=st.integers(1, 20),
    vocabulary=st.integers(1, 100),
    size=st.sampled_from([0.1, 3.0, 60.0]),
    seed=st.integers(0, 1000),
)
def test_float32_loss_and_gradient_equal_float64(rows: int, vocabulary: int, size: float, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, vocabulary, generator=draw) * size
    wanted = torch.randint(0, vocabulary, (rows,), generator=draw)
    loss, gradient = loss_and_gradient(logits, wanted, fused_cross_entropy)
    exact, exact_gradient = loss_and_gradient(logits.double(), wanted, functional.cross_entropy)
    largest_R1 = logits.double().abs().amax(dim=1, keepdim=True)
    # A loss is the difference of two logits and of the logarithm of a sum, whose relative error counts whole.
    terms = 2 * largest_R1 + 1 + math.log(vocabulary)
    assert_rounded(loss, exact, terms.mean(), rows + vocabulary + OTHER_ROUNDINGS, "loss")
    probability = logits.double().softmax(dim=1)
    terms = probability * (1 + logits.abs() + largest_R1) + functional.one_hot(wanted, vocabulary)
    assert_rounded(gradient, exact_gradient, 3 / rows * terms, vocabulary + OTHER_ROUNDINGS, "gradient")


def test_bfloat16_is_as_exact_as_through_float32() -> None:
    draw = torch.Generator().manual_seed(0)
    logits = (torch.randn(64, 1000, generator=draw) * 3).bfloat16()
    wanted = torch.randint(0, 1000, (64,), generator=draw)
    exact, exact_gradient = loss_and_gradient(logits.double(), wanted, functional.cross_entropy)

    def through_float32(logits: Tensor, wanted: Tensor) -> Tensor:
        return functional.cross_entropy(logits.float(), wanted)

    errors = []
    for function in (fused_cross_entropy, through_float32):
        loss, gradient = loss_and_gradient(logits, wanted, function)
        assert loss.dtype == torch.float32
        assert gradient.dtype == torch.bfloat16
        assert abs(loss - exact) < 1e-5 * exact
        errors.append(float((gradient.double() - exact_gradient).norm()))
    assert errors[0] < 1.001 * errors[1]


def test_nan_is_not_swallowed_and_infinite_logits_are_probabilities_of_zero() -> None:
    logits = torch.zeros(2, 40)
    logits[0, 7] = torch.nan
    logits[1, 7] = -torch.inf
    loss, gradient = loss_and_gradient(logits, torch.tensor([3, 3]), fused_cross_entropy)
    assert loss.isnan()
    assert gradient[0].isnan().any()
    assert gradient[1, 7] == 0.0
    assert gradient[1].isfinite().all()


def test_bits_do_not_depend_on_threads() -> None:
    logits = torch.randn(50, 300, generator=torch.Generator().manual_seed(0))
    wanted = torch.arange(50)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(loss_and_gradient(logits, wanted, fused_cross_entropy))
    finally:
        torch.set_num_threads(before)
    for loss, gradient in results[1:]:
        assert torch.equal(loss, results[0][0])
        assert torch.equal(gradient, results[0][1])


def test_a_wanted_token_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(RuntimeError, match="wanted token 5 is not in the vocabulary"):
        fused_cross_entropy(torch.zeros(1, 5), torch.tensor([5]))


def test_other_types_and_devices_are_left_to_pytorch() -> None:
    logits = torch.zeros(1, 5)
    assert cross_entropy_fusable(logits)
    assert cross_entropy_fusable(logits.bfloat16())
    assert not cross_entropy_fusable(logits.double())
    assert not cross_entropy_fusable(logits.half())
    assert not cross_entropy_fusable(logits.to("meta"))
