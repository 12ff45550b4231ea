"""How sure a number is: bootstrap intervals, and whether one system is better than another.

Shapes: N items, R resamples, S statistics.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from finetune.metrics.measured import FloatArray, Measured

_NUM_RESAMPLES = 1000
_INTERVAL = (2.5, 97.5)
DRAWS_AT_ONCE = 4_000_000
"""Of items, for memory: 32 MB of numbers."""


@dataclass(frozen=True)
class Estimate:
    """A metric with the ends of its 95% bootstrap interval."""

    value: float
    low: float
    high: float
    num_items: int
    """What was resampled: items, queries, documents."""


@dataclass(frozen=True)
class Comparison:
    """The difference of two metrics on the same items: the first minus the second."""

    difference: float
    low: float
    """The ends of the difference's 95% bootstrap interval."""
    high: float
    p_value: float
    """Two-sided: how often chance alone would give a difference at least as large."""
    num_items: int


def estimate(measured: Measured, seed: int) -> Estimate:
    """The metric and its interval from resampling items (Efron and Tibshirani 1993, chapter 13, percentiles)."""
    low, high = np.percentile(resampled(measured, seed), _INTERVAL)
    return Estimate(measured.value, float(low), float(high), measured.num_items)


def resampled(measured: Measured, seed: int) -> FloatArray:
    """The metric of every resample [R]; the same seed draws the same items of as many."""
    return np.concatenate(
        [
            measured.of_sums(count_RN @ measured.statistics_NS)
            for count_RN in _resamples(measured.num_items, seed)
        ]
    )


def compare(first: Measured, second: Measured, seed: int) -> Comparison:
    """`first` minus `second` by paired bootstrap: both are measured on the same resampled items.

    Raises ValueError where the numbers of items differ.
    """
    if first.num_items != second.num_items:
        raise ValueError(f"{first.num_items} items cannot be paired with {second.num_items}")
    difference_R = resampled(first, seed) - resampled(second, seed)
    return compare_resampled(first.value - second.value, difference_R, first.num_items)


def compare_resampled(difference: float, difference_R: FloatArray, num_items: int) -> Comparison:
    """The comparison from a difference and what it is on every resample.

    p is the share of resamples whose difference lies as far from the observed one as that lies from 0 (the shifted
    test of Berg-Kirkpatrick et al. 2012, two-sided; the observed sample counts as one, so p is never 0).
    """
    low, high = np.percentile(difference_R, _INTERVAL)
    # A hair of tolerance: sums in another order may differ in their last bits.
    num_as_far = int((np.abs(difference_R - difference) >= abs(difference) * (1 - 1e-9)).sum())
    p_value = (num_as_far + 1) / (len(difference_R) + 1)
    return Comparison(difference, float(low), float(high), p_value, num_items)


def _resamples(num_items: int, seed: int) -> Iterator[FloatArray]:
    """Return how often each item was drawn, [some resamples, num_items], in parts that fit into memory."""
    if not num_items:
        raise ValueError("nothing was measured")
    generator = np.random.default_rng(seed)
    at_once = max(1, DRAWS_AT_ONCE // num_items)
    for first in range(0, _NUM_RESAMPLES, at_once):
        num_resamples = min(at_once, _NUM_RESAMPLES - first)
        pick_RN = generator.integers(0, num_items, size=(num_resamples, num_items))
        pick_RN += np.arange(num_resamples)[:, None] * num_items
        count = np.bincount(pick_RN.ravel(), minlength=num_resamples * num_items)
        yield count.reshape(num_resamples, num_items).astype(np.float64)
