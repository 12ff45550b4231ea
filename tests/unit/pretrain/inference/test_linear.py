"""Products with frozen weights against float64's, on the road of a few rows and on that of many."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from pretrain.inference.linear import MAX_FEW_ROWS, FrozenLinear
from pretrain.model.fused.operators import load_operators

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2**-8}


@settings(max_examples=60, deadline=None)
@given(
    num_rows=st.integers(0, 2 * MAX_FEW_ROWS),
    outputs=st.sampled_from([16, 24, 48, 80, 272]),
    inputs=st.sampled_from([32, 40, 64, 160]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    biased=st.booleans(),
    seed=st.integers(0, 100),
)
def test_the_product_is_that_of_float64_rounded(
    num_rows: int, outputs: int, inputs: int, dtype: torch.dtype, biased: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(1, num_rows, inputs, generator=generator).to(dtype)
    weight_OI = torch.randn(outputs, inputs, generator=generator).to(dtype)
    bias_O = torch.randn(outputs, generator=generator).to(dtype) if biased else None

    product = FrozenLinear(weight_OI, bias_O)(rows)

    exact = functional.linear(rows.double(), weight_OI.double(), None if bias_O is None else bias_O.double())
    size = functional.linear(rows.double().abs(), weight_OI.double().abs()) + 1.0
    assert product.dtype == dtype
    assert product.shape == (1, num_rows, outputs)
    assert ((product.double() - exact).abs() <= TOLERANCE[dtype] * size.maximum(exact.abs())).all()


def test_a_row_does_not_depend_on_how_many_there_are() -> None:
    rows, linear = torch.randn(MAX_FEW_ROWS, 64), FrozenLinear(torch.randn(48, 64), torch.randn(48))

    together = linear(rows)

    for number in range(len(rows)):
        assert torch.equal(linear(rows[number : number + 1])[0], together[number])


def test_rows_that_lie_apart_in_memory() -> None:
    linear, rows = FrozenLinear(torch.randn(32, 32)), torch.randn(2, 5, 32)

    for part in (rows[:, 3:], rows[:, 4:]):
        assert torch.equal(linear(part), linear(part.contiguous()))


@pytest.mark.skipif(load_operators() is not None, reason="no compiler")
@pytest.mark.parametrize(
    ("rows", "weight", "bias"),
    [
        (torch.zeros(1, 32), torch.zeros(15, 32), None),
        (torch.zeros(1, 48), torch.zeros(16, 48), None),
        (torch.zeros(1, 64), torch.zeros(16, 32), None),
        (torch.zeros(1, 32, dtype=torch.bfloat16), torch.zeros(16, 32), None),
        (torch.zeros(1, 32), torch.zeros(16, 32), torch.zeros(32)),
        (torch.zeros(1, 32, dtype=torch.float64), torch.zeros(16, 32, dtype=torch.float64), None),
        (torch.zeros(32, 2).T, torch.zeros(16, 32), None),
        (torch.zeros(1, 32), torch.zeros(32, 16).T, None),
    ],
)
def test_the_operator_refuses_what_it_would_read_wrongly(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> None:
    with pytest.raises(RuntimeError):
        torch.ops.permcode_attention.few_rows_linear(rows, weight, bias)
