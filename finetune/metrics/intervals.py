"""Bootstrap confidence intervals of metrics, and paired comparisons of two systems.

Shapes: N items, R resamples, S statistics.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from finetune.metrics.measured import FloatArray, Measured

_NUM_RESAMPLES = 1000
_INTERVAL = (2.5, 97.5)
DRAWS_AT_ONCE = 4_000_000
"""Limit on the items sampled at once, for memory: 32 MB of numbers."""


@dataclass(frozen=True)
class Estimate:
    """A metric with the ends of its 95% bootstrap interval."""

    value: float
    low: float
    high: float
    num_items: int
    """The number of units that were resampled: items, queries or documents."""


@dataclass(frozen=True)
class Comparison:
    """The difference of two metrics on the same items: the first minus the second."""

    difference: float
    low: float
    """The ends of the difference's 95% bootstrap interval."""
    high: float
    p_value: float
    """Two-sided: the probability of a difference at least as large by chance alone."""
    num_items: int


def estimate(measured: Measured, seed: int) -> Estimate:
    """Return the metric and its percentile interval from resampled items (Efron and Tibshirani 1993, chapter 13)."""
    low, high = np.percentile(resampled(measured, seed), _INTERVAL)
    return Estimate(measured.value, float(low), float(high), measured.num_items)


def resampled(measured: Measured, seed: int) -> FloatArray:
    """Return the metric of every resample [R]; for equal numbers of items, the same seed samples the same items."""
    return np.concatenate(
        [
            measured.of_sums(count_RN @ measured.statistics_NS)
            for count_RN in _resamples(measured.num_items, seed)
        ]
    )


def compare(first: Measured, second: Measured, seed: int) -> Comparison:
    """Compare `first` minus `second` by paired bootstrap: both are measured on the same resampled items.

    Raise ValueError if the numbers of items differ.
    """
    if first.num_items != second.num_items:
        raise ValueError(f"{first.num_items} items cannot be paired with {second.num_items}")
    difference_R = resampled(first, seed) - resampled(second, seed)
    return compare_resampled(first.value - second.value, difference_R, first.num_items)


def compare_resampled(difference: float, difference_R: FloatArray, num_items: int) -> Comparison:
    """Return the comparison, given a difference and its value on every resample.

    p is the share of resamples whose difference is at least as far from the observed one as that is from 0 (the shifted
    test of Berg-Kirkpatrick et al. 2012, two-sided; the observed sample counts as one, so p is never 0).
    """
    low, high = np.percentile(difference_R, _INTERVAL)
    # The tolerance is for sums in another order, which may differ in their last bits.
    num_as_far = int((np.abs(difference_R - difference) >= abs(difference) * (1 - 1e-9)).sum())
    p_value = (num_as_far + 1) / (len(difference_R) + 1)
    return Comparison(difference, float(low), float(high), p_value, num_items)


def _resamples(num_items: int, seed: int) -> Iterator[FloatArray]:
    """Yield how often each item was drawn, [some resamples, num_items], in chunks that fit into memory."""
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
