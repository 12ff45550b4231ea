"""pass@k: the probability that at least one of k samples solves a problem."""

import numpy as np
from numpy.typing import ArrayLike

from finetune.metrics.measured import FloatArray, Measured, mean_of


def pass_at_k(num_samples: ArrayLike, num_passed: ArrayLike, k: int) -> Measured:
    """Return the mean over problems of the unbiased estimate 1 - C(n - c, k) / C(n, k) (Chen et al. 2021, section 2.1).

    n samples of a problem were drawn, c of them passed. Raise ValueError if n < k, k < 1, or c is not within 0 to n.
    """
    sample_N = np.asarray(num_samples, dtype=np.int64)
    passed_N = np.asarray(num_passed, dtype=np.int64)
    if k < 1 or (sample_N < k).any():
        raise ValueError(f"pass@{k} needs at least {k} samples of every problem")
    if ((passed_N < 0) | (passed_N > sample_N)).any():
        raise ValueError("more passed than were sampled, or fewer than none")
    return mean_of(f"pass_at_{k}", 1 - _all_fail(sample_N - passed_N, sample_N, k))


def _all_fail(failed_N: ArrayLike, sample_N: ArrayLike, k: int) -> FloatArray:
    """Return C(failed, k) / C(samples, k), computed as a product because the binomials alone would overflow."""
    failed, samples = np.asarray(failed_N, dtype=np.float64), np.asarray(sample_N, dtype=np.float64)
    probability_N = np.ones_like(failed)
    for drawn in range(k):
        probability_N *= np.maximum(failed - drawn, 0) / (samples - drawn)
    return probability_N
