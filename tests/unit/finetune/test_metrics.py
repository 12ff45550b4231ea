"""Ranks against a slow reference, intervals against known cases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from finetune.metrics.intervals import ratio_estimate
from finetune.metrics.ranking import reciprocal_ranks


@given(
    st.integers(1, 6).flatmap(lambda n: arrays(np.float64, (4, n), elements=st.integers(-2, 2).map(float))),
    st.data(),
)
def test_reciprocal_ranks_match_counting(scores: np.ndarray, data: st.DataObject) -> None:
    targets = np.array([data.draw(st.integers(0, scores.shape[1] - 1)) for _ in scores])
    expected = [
        1 / sum(other >= row[target] for other in row) for row, target in zip(scores, targets, strict=True)
    ]
    assert reciprocal_ranks(scores, targets).tolist() == pytest.approx(expected)


def test_constant_and_undefined_scores_rank_last() -> None:
    assert reciprocal_ranks(np.zeros((2, 10)), np.array([0, 9])).tolist() == [0.1, 0.1]
    assert reciprocal_ranks(np.full((1, 4), np.nan), np.array([0])).tolist() == [0.25]


def test_estimate_is_the_ratio_of_sums_within_its_interval() -> None:
    estimate = ratio_estimate([1, 8, 0, 3], [2, 10, 5, 3], seed=1)
    assert estimate.value == pytest.approx(12 / 20)
    assert estimate.low < estimate.value < estimate.high
    assert estimate == ratio_estimate([1, 8, 0, 3], [2, 10, 5, 3], seed=1)


def test_interval_narrows_with_more_units_and_vanishes_without_variation() -> None:
    few, many = (ratio_estimate([0, 1] * n, [1, 1] * n, seed=2) for n in (10, 1000))
    assert many.high - many.low < 0.3 * (few.high - few.low)
    same = ratio_estimate([1, 2], [2, 4], seed=3)
    assert (same.low, same.value, same.high) == (0.5, 0.5, 0.5)


def test_nothing_tried_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing was tried"):
        ratio_estimate([0], [0], seed=0)
