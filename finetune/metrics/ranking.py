"""How well candidates are ranked."""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def reciprocal_ranks(score_QC: npt.NDArray[np.floating], target_Q: npt.NDArray[np.integer]) -> FloatArray:
    """1 / rank of each query's target among its candidates, higher scores first; [num_queries].

    Ties count against the target, and so does a score that is not a number: a constant scorer ranks last.
    """
    target_score_Q1 = np.take_along_axis(score_QC, target_Q[:, None], axis=1)
    num_beaten_Q = (score_QC < target_score_Q1).sum(axis=1)
    return np.asarray(1.0 / (score_QC.shape[1] - num_beaten_Q), dtype=np.float64)
