"""The fused residual sum and LayerNorm against PyTorch's in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from pretrain.model.fused.add_norm import add_norm, add_norm_fusable
from pretrain.model.fused.operators import load_operators

EPSILON = 1e-5


@pytest.fixture(autouse=True, scope="module")
def _operators() -> None:
    assert load_operators() is None


def plain(
    rows: Tensor, update: Tensor, weight: Tensor, bias: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    weight, bias = weight.to(rows.dtype), bias.to(rows.dtype)
    wide = functional.layer_norm(rows + update.to(rows.dtype), rows.shape[-1:], weight, bias, epsilon)
    return wide, wide.to(update.dtype)


def inputs_of(rows: int, columns: int, dtype: torch.dtype, seed: int = 0) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    shapes = [(rows, columns), (rows, columns), (columns,), (columns,)]
    residual, *others = (torch.randn(shape, generator=draw) + 0.3 for shape in shapes)
    return [residual, *(part.to(dtype) for part in others)]


def with_gradients(function, inputs: list[Tensor], used: str) -> list[Tensor]:
    """The results and the gradients of all inputs, from those of the results that are used."""
    inputs = [part.clone().requires_grad_() for part in inputs]
    wide, narrow = function(*inputs, EPSILON)
    draw = torch.Generator().manual_seed(1)
    of_wide, of_narrow = (torch.randn(wide.shape, generator=draw).bfloat16() for _ in range(2))
    loss = torch.zeros((), dtype=torch.float64)
    if "wide" in used:
        loss = loss + (wide.double() * of_wide).sum()
    if "narrow" in used:
        loss = loss + (narrow.double() * of_narrow).sum()
    return [wide.detach(), narrow.detach(), *torch.autograd.grad(loss, inputs)]


@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(1, 150),
    steps=st.integers(1, 4),
    used=st.sampled_from(["wide", "narrow", "wide and narrow"]),
    seed=st.integers(0, 1000),
)
def test_float32_results_and_gradients_equal_float64(rows: int, steps: int, used: str, seed: int) -> None:
    inputs = inputs_of(rows, 16 * steps, torch.float32, seed)
    found = with_gradients(add_norm, inputs, used)
    exact = with_gradients(plain, [part.double() for part in inputs], used)
    for one, other in zip(found, exact, strict=True):
        assert (one - other).abs().max() < 2e-5 * max(1.0, float(other.abs().max()))


@pytest.mark.parametrize("used", ["wide", "narrow", "wide and narrow"])
def test_bfloat16_is_as_exact_as_pytorch(used: str) -> None:
    inputs = inputs_of(300, 64, torch.bfloat16)
    exact = with_gradients(plain, [part.double() for part in inputs], used)
    found, theirs = with_gradients(add_norm, inputs, used), with_gradients(plain, inputs, used)
    assert [part.dtype for part in found] == [part.dtype for part in theirs]
    for one, other, wanted in zip(found, theirs, exact, strict=True):
        allowed = 1.1 * (other.double() - wanted).norm() + 1e-6 * wanted.norm()
        assert (one.double() - wanted).norm() < allowed


def test_nan_stays_in_its_row() -> None:
    inputs = inputs_of(3, 16, torch.float32)
    inputs[0][1, 3] = torch.nan
    wide, _ = add_norm(*inputs, EPSILON)
    assert wide.isnan().all(dim=1).tolist() == [False, True, False]
    assert not wide[[0, 2]].isnan().any()


def test_bits_do_not_depend_on_threads() -> None:
    inputs = inputs_of(500, 32, torch.bfloat16)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(with_gradients(add_norm, inputs, "wide and narrow"))
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(result, results[0], strict=True))


def test_no_rows_and_any_layout() -> None:
    inputs = inputs_of(6, 32, torch.bfloat16)
    assert add_norm(inputs[0][:0], inputs[1][:0], *inputs[2:], EPSILON)[0].shape == (0, 32)
    wanted, _ = add_norm(*inputs, EPSILON)
    strided = [part.view(2, 3, 32).transpose(0, 1) for part in inputs[:2]]
    found, narrow = add_norm(*strided, *inputs[2:], EPSILON)
    assert torch.equal(found, wanted.view(2, 3, 32).transpose(0, 1))
    assert torch.equal(narrow, found.bfloat16())


def test_other_types_shapes_and_devices_are_left_to_pytorch() -> None:
    rows = torch.zeros(2, 32)
    assert add_norm_fusable(rows, rows)
    assert add_norm_fusable(rows, rows.bfloat16())
    assert not add_norm_fusable(rows, rows.half())
    assert not add_norm_fusable(rows.double(), rows)
    assert not add_norm_fusable(rows.bfloat16(), rows.bfloat16())
    assert not add_norm_fusable(rows[:, :24], rows[:, :24])
    assert not add_norm_fusable(rows.to("meta"), rows.to("meta"))


def test_what_does_not_fit_is_refused() -> None:
    inputs = inputs_of(3, 32, torch.float32)
    with pytest.raises(RuntimeError, match="rows of another shape"):
        add_norm(inputs[0], inputs[1][:2], *inputs[2:], EPSILON)
    with pytest.raises(RuntimeError, match="rows of another shape"):
        add_norm(*inputs[:3], inputs[3][:16], EPSILON)
