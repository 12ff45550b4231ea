"""How sure a number is: bootstrap intervals."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_NUM_RESAMPLES = 1000
_INTERVAL = (2.5, 97.5)


@dataclass(frozen=True)
class Estimate:
    """A mean with the ends of its 95% bootstrap interval."""

    value: float
    low: float
    high: float


def ratio_estimate(hits: npt.ArrayLike, trials: npt.ArrayLike, seed: int) -> Estimate:
    """sum(hits) / sum(trials), the interval from resampling whole units (documents, queries).

    Units and not single trials are resampled, because those of one document are alike. Raises ValueError
    when there is no trial.
    """
    hit_U, trial_U = np.asarray(hits, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    if trial_U.sum() <= 0:
        raise ValueError("nothing was tried")
    generator = np.random.default_rng(seed)
    pick_RU = generator.integers(0, len(hit_U), size=(_NUM_RESAMPLES, len(hit_U)))
    hit_R, trial_R = hit_U[pick_RU].sum(axis=1), trial_U[pick_RU].sum(axis=1)
    ratios = hit_R[trial_R > 0] / trial_R[trial_R > 0]
    low, high = np.percentile(ratios, _INTERVAL)
    return Estimate(float(hit_U.sum() / trial_U.sum()), float(low), float(high))
