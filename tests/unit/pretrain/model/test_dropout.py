"""Dropout in C++: the right share, evenly spread, the same choices for the gradient, whatever the threads."""

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pretrain.model.dropout import Dropout
from pretrain.model.fused.operators import load_operators

NUM = 1 << 20
DEVIATIONS = 5.0


@pytest.fixture(autouse=True, scope="module")
def _operators() -> None:
    assert load_operators() is None


def kept(probability: float, seed: int, num: int = NUM, dtype: torch.dtype = torch.float32) -> Tensor:
    """Which of `num` numbers stay."""
    torch.manual_seed(seed)
    return Dropout(probability)(torch.ones(num, dtype=dtype)) != 0


def is_near(counted: float, share: float, num: int) -> bool:
    """Whether a count of `num` independent choices is what chance would give."""
    return abs(counted - share * num) < DEVIATIONS * (share * (1 - share) * num) ** 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("probability", [0.02, 0.1, 0.5, 0.9])
def test_the_share_dropped_is_the_probability(probability: float, dtype: torch.dtype) -> None:
    assert is_near(float((~kept(probability, 3, dtype=dtype)).sum()), probability, NUM)


def test_what_stays_is_scaled_and_its_gradient_with_it() -> None:
    x = torch.randn(64, 48, requires_grad=True)
    y = Dropout(0.25)(x)
    stays = y != 0
    assert torch.equal(y[stays], (x.detach() * (1 / 0.75))[stays])
    (gradient,) = torch.autograd.grad(y, x, torch.full_like(y, 3.0))
    assert torch.equal(gradient, stays * 4.0)


@pytest.mark.parametrize("lag", [1, 2, 16, 17, 256, 1024, 65536])
def test_neighbours_are_dropped_independently(lag: int) -> None:
    stays = kept(0.5, 5)
    assert is_near(float((stays[lag:] == stays[:-lag]).sum()), 0.5, NUM - lag)


@pytest.mark.parametrize("other", [1, 2, 1 << 20])
def test_calls_and_seeds_are_dropped_independently(other: int) -> None:
    torch.manual_seed(0)
    first, second = (Dropout(0.5)(torch.ones(NUM)) != 0 for _ in range(2))
    assert is_near(float((first == second).sum()), 0.5, NUM)
    assert is_near(float((first == kept(0.5, other)).sum()), 0.5, NUM)


def test_every_column_and_row_has_its_share() -> None:
    stays = kept(0.1, 7).view(1024, 1024).double()
    for sums in (stays.sum(0), stays.sum(1)):
        statistic = float(((sums - 921.6) ** 2 / (1024 * 0.9 * 0.1)).sum())
        # Chi-squared of 1,024 degrees of freedom.
        assert abs(statistic - 1024) < DEVIATIONS * (2 * 1024) ** 0.5


def test_threads_do_not_matter() -> None:
    threads = torch.get_num_threads()
    alone = kept(0.3, 9)
    try:
        torch.set_num_threads(threads + 1)
        assert torch.equal(kept(0.3, 9), alone)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("shape", [(0, 16), (3, 5), (4, 16)])
def test_any_shape(shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    assert Dropout(0.5)(torch.ones(shape)).shape == shape


def test_rows_that_are_not_contiguous() -> None:
    torch.manual_seed(1)
    x = torch.randn(32, 64, requires_grad=True)
    y = Dropout(0.5)(x.t())
    (gradient,) = torch.autograd.grad(y.t().sum(), x)
    assert torch.equal(gradient != 0, y.t() != 0)


def test_computed_again_it_drops_the_same() -> None:
    x = torch.randn(64, 64, requires_grad=True)
    torch.manual_seed(2)
    y = checkpoint(lambda rows: Dropout(0.5)(rows).square(), x, use_reentrant=False)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient != 0, y != 0)


def test_nothing_is_dropped_outside_training() -> None:
    x = torch.randn(8, 16)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
