"""The gradient of a recurrence's matrix, made at once, against autograd's, made step by step."""

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from finetune.layers.shared_factor import SharedFactor


def recurrence(multiply: Callable[[Tensor], Tensor], state_BI: Tensor, num_steps: int) -> Tensor:
    """A network whose every state is made of the one before."""
    total_BI = state_BI
    for _ in range(num_steps):
        state_BI = torch.tanh(multiply(state_BI) + state_BI)
        total_BI = total_BI + state_BI
    return total_BI


def gradients(
    matrix: Tensor, start_BI: Tensor, num_steps: int, shared: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The result, and the gradients of the matrix and of the first state."""
    matrix, start_BI = matrix.clone().requires_grad_(), start_BI.clone().requires_grad_()
    multiply = SharedFactor(matrix) if shared else lambda rows: rows @ matrix
    total_BI = recurrence(multiply, start_BI, num_steps)
    (total_BI * torch.arange(total_BI.numel()).view_as(total_BI)).sum().backward()
    return total_BI.detach(), matrix.grad, start_BI.grad


@settings(max_examples=40, deadline=None)
@given(
    lanes=st.integers(1, 4),
    dim=st.integers(1, 6),
    num_steps=st.integers(0, 7),
    per_lane=st.booleans(),
    seed=st.integers(0, 100),
)
def test_results_and_gradients_are_autograds(
    lanes: int, dim: int, num_steps: int, per_lane: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    matrix = torch.randn(*([lanes] if per_lane else []), dim, dim, dtype=torch.float64)
    start_BI = torch.randn(lanes, *([2] if per_lane else []), dim, dtype=torch.float64)
    found = gradients(matrix, start_BI, num_steps, shared=True)
    expected = gradients(matrix, start_BI, num_steps, shared=False)
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_bfloat16_is_rounded_once_and_not_at_every_step() -> None:
    torch.manual_seed(0)
    matrix, start_BI = torch.randn(16, 16).bfloat16() / 8, torch.randn(4, 16).bfloat16()
    exact = gradients(matrix.double(), start_BI.double(), 200, shared=False)[1]
    assert exact is not None

    def error(shared: bool) -> float:
        found = gradients(matrix, start_BI, 200, shared)[1]
        assert found is not None
        return float((found.double() - exact).norm() / exact.norm())

    assert error(shared=True) < error(shared=False)


@pytest.mark.parametrize("goes_back", [True, False])
def test_nothing_outlives_a_pass(goes_back: bool) -> None:
    gc.disable()
    try:
        matrix = torch.randn(3, 3, requires_grad=True)
        multiply = SharedFactor(matrix)
        state_BI = torch.randn(2, 3, requires_grad=True)
        total_BI = recurrence(multiply, state_BI, 4)
        if goes_back:
            total_BI.sum().backward()
        alive = weakref.ref(multiply._matrix)
        del multiply, total_BI
        assert alive() is None
    finally:
        gc.enable()


def test_a_matrix_that_does_not_learn_gets_no_gradient() -> None:
    matrix, start_BI = torch.randn(3, 3), torch.randn(2, 3, requires_grad=True)
    recurrence(SharedFactor(matrix), start_BI, 3).sum().backward()
    assert matrix.grad is None
    assert start_BI.grad is not None
