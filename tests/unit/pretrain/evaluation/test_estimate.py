"""Bits per byte with a standard error that means what it says."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain.evaluation.estimate import NUM_SUMS, Estimate, document_sums

_COSTS = st.lists(
    st.tuples(st.floats(0.0, 1e5), st.integers(0, 100_000)).map(lambda pair: (pair[0], float(pair[1]))),
    min_size=2,
    max_size=30,
).filter(lambda costs: sum(num_bytes for _, num_bytes in costs) > 0)


def estimate(nats: np.ndarray, num_bytes: np.ndarray) -> Estimate:
    found = Estimate.of(document_sums(nats, num_bytes).sum(axis=0))
    assert found is not None
    return found


@given(_COSTS)
def test_the_standard_error_is_that_of_a_ratio_of_sums(costs: list[tuple[float, float]]) -> None:
    nats, num_bytes = np.array(costs).T
    ratio = nats.sum() / num_bytes.sum()
    residual = ((nats - ratio * num_bytes) ** 2).sum()
    n = len(costs)
    error_nats = math.sqrt(residual * n / (n - 1)) / num_bytes.sum()
    found = estimate(nats, num_bytes)
    assert found.bits_per_byte == pytest.approx(ratio / math.log(2))
    assert found.standard_error is not None
    # Sums of squares lose digits where the residuals are far below the squares.
    noise = math.sqrt(1e-14 * ((nats**2).sum() + (ratio * num_bytes) ** 2 @ np.ones(n))) / num_bytes.sum()
    assert found.standard_error * math.log(2) == pytest.approx(error_nats, rel=1e-6, abs=2 * noise)


def test_the_true_figure_lies_within_two_standard_errors_nineteen_times_in_twenty() -> None:
    """2,000 samples of 60 documents whose cost per byte varies and goes with their size: 95 % within 2 % of it."""
    generator = np.random.default_rng(0)
    num_bytes = generator.lognormal(7.0, 0.8, size=(2000, 60))
    nats = num_bytes * (0.9 + 0.2 * generator.standard_normal((2000, 60))) + 80.0
    truth = (0.9 * math.exp(7.0 + 0.32) + 80.0) / math.exp(7.0 + 0.32) / math.log(2)
    found = [estimate(nats[sample], num_bytes[sample]) for sample in range(2000)]
    within = [abs(one.bits_per_byte - truth) < 1.96 * (one.standard_error or 0.0) for one in found]
    assert np.mean(within) == pytest.approx(0.95, abs=0.02)


def test_one_document_has_no_standard_error_and_none_no_figure() -> None:
    one = estimate(np.array([5.0]), np.array([7.0]))
    assert one.standard_error is None
    assert one.num_documents == 1
    assert Estimate.of(np.zeros(NUM_SUMS)) is None


def test_documents_that_cost_the_same_per_byte_have_no_error() -> None:
    num_bytes = np.array([7.0, 900.0, 33.0])
    assert estimate(0.3 * num_bytes, num_bytes).standard_error == pytest.approx(0.0, abs=1e-7)
