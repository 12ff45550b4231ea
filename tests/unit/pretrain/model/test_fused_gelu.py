"""The fused GELU against PyTorch's own in float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from pretrain.model.fused.gelu import bias_gelu, bias_gelu_fusable
from pretrain.model.fused.operators import load_operators
from tests.rounding import OTHER_ROUNDINGS, assert_rounded


@pytest.fixture(autouse=True, scope="module")
def _operators() -> None:
    assert load_operators() is None


def plain(x: Tensor, bias: Tensor) -> Tensor:
    return functional.gelu(x + bias)


def with_gradients(function, x: Tensor, bias: Tensor, of_result: Tensor) -> list[Tensor]:
    """The result, and the gradients of x and bias."""
    inputs = [x.clone().requires_grad_(), bias.clone().requires_grad_()]
    result = function(*inputs)
    return [result.detach(), *torch.autograd.grad(result, inputs, of_result)]


def case(rows: int, columns: int, size: float, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, generator=draw) * size
    return x, torch.randn(columns, generator=draw), torch.randn(rows, columns, generator=draw)


@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(1, 150),
    steps=st.integers(1, 4),
    size=st.sampled_from([0.01, 1.0, 10.0]),
    seed=st.integers(0, 1000),
)
def test_float32_value_and_gradients_equal_float64(rows: int, steps: int, size: float, seed: int) -> None:
    inputs = case(rows, 16 * steps, size, seed)
    x, bias, of_result = (part.double() for part in inputs)
    exact = with_gradients(plain, x, bias, of_result)
    sums, size_of_sums = x + bias, x.abs() + bias.abs()
    # How the derivative changes with the sum.
    curvature = (2 - sums.square()).abs() * (-sums.square() / 2).exp() / math.sqrt(2 * math.pi)
    of_x = of_result.abs() * (1 + size_of_sums * curvature)
    magnitudes = (1 + size_of_sums, of_x, of_x.sum(dim=0))
    num_roundings = (OTHER_ROUNDINGS, OTHER_ROUNDINGS, OTHER_ROUNDINGS + rows)
    found = with_gradients(bias_gelu, *inputs)
    for each in zip(found, exact, magnitudes, num_roundings, ("value", "of x", "of bias"), strict=True):
        assert_rounded(*each)


def test_the_tails_do_not_cancel() -> None:
    x = torch.linspace(-9.0, -1.0, 160).view(10, 16)
    exact = x.double() * 0.5 * torch.special.erfc(-x.double() * 0.5**0.5)
    found = bias_gelu(x, torch.zeros(16))
    # The formula is off by 1.5 % at -9, where what is left is 1e-18; 1 - P(9) would be 0.
    assert ((found - exact) / exact).abs().max() < 0.02
    assert torch.equal(bias_gelu(-x + 8.0, torch.zeros(16)), -x + 8.0)


def test_bfloat16_is_as_exact_as_pytorch() -> None:
    inputs = [part.bfloat16() for part in case(300, 64, 1.5)]
    exact = with_gradients(plain, *(part.double() for part in inputs))
    found, theirs = with_gradients(bias_gelu, *inputs), with_gradients(plain, *inputs)
    for one, other, wanted in zip(found, theirs, exact, strict=True):
        assert one.dtype == torch.bfloat16
        assert (one.double() - wanted).norm() < 1.1 * (other.double() - wanted).norm()


def test_nan_is_not_swallowed() -> None:
    x = torch.zeros(2, 16)
    x[1, 3] = torch.nan
    result, of_x, of_bias = with_gradients(bias_gelu, x, torch.zeros(16), torch.ones(2, 16))
    assert result.isnan().nonzero().tolist() == [[1, 3]]
    assert of_x.isnan().nonzero().tolist() == [[1, 3]]
    assert of_bias.isnan().nonzero().tolist() == [[3]]


def test_bits_do_not_depend_on_threads() -> None:
    inputs = case(500, 32, 1.0)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(with_gradients(bias_gelu, *inputs))
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(result, results[0], strict=True))


def test_no_rows_and_any_number_of_dimensions() -> None:
    assert bias_gelu(torch.zeros(0, 16), torch.ones(16)).shape == (0, 16)
    _, of_x, of_bias = with_gradients(bias_gelu, torch.zeros(0, 16), torch.ones(16), torch.zeros(0, 16))
    assert of_x.shape == (0, 16)
    assert torch.equal(of_bias, torch.zeros(16))
    x = torch.randn(2, 3, 16)
    assert torch.allclose(bias_gelu(x, torch.zeros(16)), functional.gelu(x), atol=1e-6)


def test_other_types_shapes_and_devices_are_left_to_pytorch() -> None:
    assert bias_gelu_fusable(torch.float32, torch.zeros(32))
    assert bias_gelu_fusable(torch.bfloat16, torch.zeros(32))
    assert not bias_gelu_fusable(torch.float64, torch.zeros(32))
    assert not bias_gelu_fusable(torch.float16, torch.zeros(32))
    assert not bias_gelu_fusable(torch.float32, torch.zeros(24))
    assert not bias_gelu_fusable(torch.float32, torch.zeros(32, device="meta"))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(RuntimeError, match="steps of 16"):
        bias_gelu(torch.zeros(2, 24), torch.zeros(24))
    with pytest.raises(RuntimeError, match="a float32 bias for every column"):
        bias_gelu(torch.zeros(2, 32), torch.zeros(16))
