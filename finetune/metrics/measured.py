"""The common form of all metrics: a function of sums over items. It gives the value, the interval and comparisons.

Corpus BLEU, F1, MRR and accuracy are all functions of statistics summed over the items: n-gram matches, true positives,
reciprocal ranks. Resampling items means resampling the rows of these statistics.

Shapes: N items, S statistics.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """One metric over N items; higher is better."""

    name: str
    statistics_NS: FloatArray
    of_sums: Callable[[FloatArray], FloatArray]
    """Maps sums over items [..., S] to the metric [...]."""

    @property
    def num_items(self) -> int:
        """The number of items, N."""
        return len(self.statistics_NS)

    @property
    def value(self) -> float:
        """The metric over all items."""
        return float(self.of_sums(self.statistics_NS.sum(axis=0)))


def mean_of(name: str, value_N: FloatArray) -> Measured:
    """Return the metric that is the mean of one number per item."""
    value_N = np.asarray(value_N, dtype=np.float64)
    return Measured(
        name, np.stack([value_N, np.ones_like(value_N)], axis=1), lambda sums: sums[..., 0] / sums[..., 1]
    )
