"""Ranking metrics, each between 0 and 1.

Ties always count against the scorer: among candidates with equal scores, the irrelevant ones rank first, so a constant
scorer gets the worst ranks. NaN scores rank below all others.

Shapes: Q queries, C candidates, R relevant candidates of one query.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cluster.errors import UserError
from finetune.metrics.measured import Measured, mean_of

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class SearchPool(Protocol):
    """The attributes of `finetune.modalities.ranking.Pool` that the metrics read."""

    @property
    def query_keys(self) -> Sequence[str]: ...
    @property
    def queries(self) -> Sequence[str]: ...
    @property
    def candidates(self) -> Sequence[str]: ...
    @property
    def relevant(self) -> Sequence[tuple[int, ...]]: ...
    @property
    def excluded(self) -> Sequence[int | None] | None: ...


def mrr(pool: SearchPool, score_QC: npt.NDArray[np.floating]) -> Measured:
    """Return the mean reciprocal rank of the first relevant candidate, over the whole candidate set."""
    return _mean_over_queries("mrr", pool, score_QC, lambda rank_R: 1.0 / float(rank_R[0]))


def recall_at(pool: SearchPool, score_QC: npt.NDArray[np.floating], k: int) -> Measured:
    """Return the mean share of a query's relevant candidates that are among the first k."""
    return _mean_over_queries(f"recall_at_{k}", pool, score_QC, lambda rank_R: float((rank_R <= k).mean()))


def map_at_r(pool: SearchPool, score_QC: npt.NDArray[np.floating]) -> Measured:
    """Return MAP@R (Musgrave et al. 2020, section 3.1; CodeXGLUE's POJ-104).

    With R relevant candidates, a query's value is the sum of the precisions at the relevant ones among the first R,
    divided by R. The metric is the mean over queries.
    """
    return _mean_over_queries("map_at_r", pool, score_QC, _average_precision_at_r)


def _average_precision_at_r(rank_R: IntArray) -> float:
    precision_R = np.arange(1, len(rank_R) + 1) / rank_R
    return float(precision_R[rank_R <= len(rank_R)].sum() / len(rank_R))


def _mean_over_queries(
    name: str, pool: SearchPool, score_QC: npt.NDArray[np.floating], of_ranks: Callable[[IntArray], float]
) -> Measured:
    wanted_shape = (len(pool.queries), len(pool.candidates))
    if score_QC.shape != wanted_shape:
        raise ValueError(f"scores of shape {score_QC.shape} for a pool of {wanted_shape}")
    if not wanted_shape[0]:
        raise UserError("there are no queries to measure: the set is empty")
    return mean_of(
        name, np.array([of_ranks(relevant_ranks(pool, score_QC[q], q)) for q in range(len(score_QC))])
    )


def relevant_ranks(pool: SearchPool, score_C: npt.NDArray[np.floating], query: int) -> IntArray:
    """Return the ascending ranks, from 1, of a query's relevant candidates, given its scores of all candidates.

    Raise UserError if the query has no relevant candidate, ValueError if its excluded candidate is relevant.
    """
    relevant = sorted(set(pool.relevant[query]))
    if not relevant:
        raise UserError(f"query {pool.query_keys[query]} has nothing to find: leave it out")
    score_C = np.where(np.isnan(score_C), -np.inf, score_C)
    is_other_C = np.ones(len(score_C), dtype=np.bool_)
    is_other_C[relevant] = False
    excluded = None if pool.excluded is None else pool.excluded[query]
    if excluded is not None:
        if excluded in relevant:
            raise ValueError(f"query {pool.query_keys[query]} should find itself, which is not ranked")
        is_other_C[excluded] = False
    relevant_score_R = -np.sort(-score_C[relevant])
    other_score = np.sort(score_C[is_other_C])
    num_others_before_R = len(other_score) - np.searchsorted(other_score, relevant_score_R, side="left")
    return np.asarray(np.arange(1, len(relevant) + 1) + num_others_before_R, dtype=np.int64)
