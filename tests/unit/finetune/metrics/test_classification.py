"""Metrics of labels against scikit-learn's, the threshold against trying all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_score, recall_score

from cluster.errors import UserError
from finetune.metrics.classification import (
    accuracy,
    best_threshold,
    binary_f1,
    binary_precision,
    binary_recall,
    macro_f1,
)


def _two_columns(largest: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    return st.lists(st.tuples(st.integers(0, largest), st.integers(0, largest)), min_size=1, max_size=20)


@given(_two_columns(1))
def test_binary_metrics_are_those_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    wanted, given = zip(*pairs, strict=True)
    assert accuracy(wanted, given).value == pytest.approx(np.mean(np.array(wanted) == given))
    for ours, theirs in (
        (binary_f1, f1_score),
        (binary_precision, precision_score),
        (binary_recall, recall_score),
    ):
        assert ours(wanted, given).value == pytest.approx(theirs(wanted, given, zero_division=0))


@given(_two_columns(3))
def test_macro_f1_is_that_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    wanted, given = zip(*pairs, strict=True)
    expected = f1_score(wanted, given, average="macro", zero_division=0)
    assert macro_f1(wanted, given, num_labels=6).value == pytest.approx(expected)


@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from([0.1, 0.2, 0.5, 0.9])), min_size=1, max_size=12))
def test_no_threshold_is_better_than_the_best(pairs: list[tuple[int, float]]) -> None:
    wanted, scores = (np.array(column) for column in zip(*pairs, strict=True))
    if not wanted.any():
        with pytest.raises(UserError, match="no item has label 1"):
            best_threshold(wanted, scores)
        return
    found = binary_f1(wanted, scores >= best_threshold(wanted, scores)).value
    assert found == pytest.approx(max(binary_f1(wanted, scores >= score).value for score in scores))


def test_the_threshold_keeps_away_from_the_scores() -> None:
    assert best_threshold([0, 1, 1], [0.2, 0.6, 0.8]) == pytest.approx(0.4)


def test_bad_labels_are_refused() -> None:
    with pytest.raises(UserError, match="2 labels given for 1 items"):
        accuracy([1], [1, 0])
    with pytest.raises(UserError, match="no labels"):
        accuracy([], [])
    with pytest.raises(UserError, match="not a number"):
        best_threshold([1], [np.nan])
