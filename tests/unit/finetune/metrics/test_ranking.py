"""Ranks against slow references: sorting with ties broken against the scorer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cluster.errors import UserError
from finetune.metrics.ranking import map_at_r, mrr, recall_at
from finetune.modalities.ranking import Pool


def _pool(num_candidates: int, relevant: list[tuple[int, ...]], excluded: list[int | None] | None) -> Pool:
    keys = [f"q{number}" for number in range(len(relevant))]
    return Pool(keys, keys, [f"c{number}" for number in range(num_candidates)], relevant, excluded)


def _sorted_relevance(scores: np.ndarray, relevant: tuple[int, ...], excluded: int | None) -> list[bool]:
    """Whether each ranked candidate is relevant, best first; of equals the irrelevant first."""
    ranked = [number for number in range(len(scores)) if number != excluded]
    ranked.sort(key=lambda number: (-np.nan_to_num(scores[number], nan=-np.inf), number in relevant))
    return [number in relevant for number in ranked]


@st.composite
def _cases(draw: st.DrawFn) -> tuple[Pool, np.ndarray]:
    num_candidates = draw(st.integers(3, 8))
    excluded = [draw(st.sampled_from([None, 0])) for _ in range(3)]
    relevant = [
        tuple(draw(st.sets(st.integers(1, num_candidates - 1), min_size=1, max_size=4))) for _ in range(3)
    ]
    elements = st.one_of(st.integers(-2, 2).map(float), st.just(np.nan))
    scores = draw(arrays(np.float64, (3, num_candidates), elements=elements))
    return _pool(num_candidates, relevant, excluded), scores


@given(_cases(), st.integers(1, 5))
def test_pool_metrics_match_sorting(case: tuple[Pool, np.ndarray], k: int) -> None:
    pool, scores = case
    firsts, recalls, precisions = [], [], []
    assert pool.excluded is not None
    for row, relevant, excluded in zip(scores, pool.relevant, pool.excluded, strict=True):
        ranked = _sorted_relevance(row, relevant, excluded)
        firsts.append(1 / (ranked.index(True) + 1))
        recalls.append(sum(ranked[:k]) / len(relevant))
        hits = [
            sum(ranked[: rank + 1]) / (rank + 1)
            for rank in range(len(relevant))
            if ranked[rank : rank + 1] == [True]
        ]
        precisions.append(sum(hits) / len(relevant))
    assert mrr(pool, scores).value == pytest.approx(np.mean(firsts))
    assert recall_at(pool, scores, k).value == pytest.approx(np.mean(recalls))
    assert map_at_r(pool, scores).value == pytest.approx(np.mean(precisions))


def test_a_constant_scorer_gains_nothing() -> None:
    pool = _pool(100, [(0, 1), (5,)], None)
    scores = np.zeros((2, 100))
    assert mrr(pool, scores).value == pytest.approx((1 / 99 + 1 / 100) / 2)
    assert map_at_r(pool, scores).value == recall_at(pool, scores, 10).value == 0.0


def test_infinite_scores_are_scores() -> None:
    pool = _pool(3, [(0,)], None)
    assert mrr(pool, np.array([[np.inf, 1.0, -np.inf]])).value == 1.0
    # A score that is not a number is no better than the lowest.
    assert mrr(pool, np.array([[np.nan, 1.0, -np.inf]])).value == pytest.approx(1 / 3)


def test_bad_pools_are_refused() -> None:
    with pytest.raises(UserError, match="q1 has nothing to find"):
        mrr(_pool(2, [(0,), ()], None), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="should find itself"):
        mrr(_pool(2, [(0,)], [0]), np.zeros((1, 2)))
    with pytest.raises(ValueError, match="shape"):
        mrr(_pool(2, [(0,)], None), np.zeros((1, 3)))
    with pytest.raises(UserError, match="no queries"):
        mrr(_pool(2, [], None), np.zeros((0, 2)))
