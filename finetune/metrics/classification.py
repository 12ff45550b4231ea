"""Classification metrics, each between 0 and 1.

Shapes: N items, C labels.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cluster.errors import UserError
from finetune.metrics.measured import FloatArray, Measured, mean_of

LabelArray = NDArray[np.int64]


def accuracy(wanted: ArrayLike, given: ArrayLike) -> Measured:
    """Return the share of items whose given label is the wanted one."""
    wanted_N, given_N = _checked(wanted, given)
    return mean_of("accuracy", (wanted_N == given_N).astype(np.float64))


def binary_f1(wanted: ArrayLike, given: ArrayLike) -> Measured:
    """Return F1 of label 1; 0 if no label is 1 on either side, as in scikit-learn."""
    return _of_label_one("f1", wanted, given, lambda hit, given, wanted: _ratio(2 * hit, given + wanted))


def binary_precision(wanted: ArrayLike, given: ArrayLike) -> Measured:
    """Return the precision of label 1: the share of given 1s that are wanted; 0 if none is given."""
    return _of_label_one("precision", wanted, given, lambda hit, given, wanted: _ratio(hit, given))


def binary_recall(wanted: ArrayLike, given: ArrayLike) -> Measured:
    """Return the recall of label 1: the share of wanted 1s that are given; 0 if none is wanted."""
    return _of_label_one("recall", wanted, given, lambda hit, given, wanted: _ratio(hit, wanted))


def macro_f1(wanted: ArrayLike, given: ArrayLike, num_labels: int) -> Measured:
    """Return the mean F1 of the labels that occur on either side (as scikit-learn counts them)."""
    wanted_N, given_N = _checked(wanted, given)
    label_C = np.arange(num_labels)
    is_wanted_NC, is_given_NC = wanted_N[:, None] == label_C, given_N[:, None] == label_C
    statistics = np.concatenate([is_wanted_NC & is_given_NC, is_wanted_NC, is_given_NC], axis=1)

    def of_sums(sums: FloatArray) -> FloatArray:
        hit_C, wanted_C, given_C = np.split(sums, 3, axis=-1)
        f1_C = _ratio(2 * hit_C, wanted_C + given_C)
        return _ratio(f1_C.sum(axis=-1), ((wanted_C + given_C) > 0).sum(axis=-1).astype(np.float64))

    return Measured("macro_f1", statistics.astype(np.float64), of_sums)


def best_threshold(wanted: ArrayLike, score: ArrayLike) -> float:
    """Return the threshold t for which "1 if score >= t" has the highest F1; on ties the highest t.

    Use the validation split to choose it, then apply it to the test split. It is half-way to the next lower score, so
    that rounding cannot change a label. Raise UserError if no label is 1, or a score is not a number.
    """
    wanted_N = np.asarray(wanted, dtype=np.int64)
    score_N = np.asarray(score, dtype=np.float64)
    if not (wanted_N == 1).any():
        raise UserError("no item has label 1: no threshold can be chosen on such a split")
    if np.isnan(score_N).any():
        raise UserError("a score is not a number: no threshold can be chosen on such scores")
    order = np.argsort(-score_N, kind="stable")
    sorted_N, hits_N = score_N[order], np.cumsum(wanted_N[order] == 1)
    # Equal scores get equal labels: only the last of them may end the positives.
    last_of_equals = np.flatnonzero(np.append(sorted_N[1:] < sorted_N[:-1], True))
    f1 = 2 * hits_N[last_of_equals] / (last_of_equals + 1 + hits_N[-1])
    end = int(last_of_equals[np.argmax(f1)])
    if end + 1 == len(sorted_N):
        return float(sorted_N[end])
    return float(sorted_N[end + 1] + (sorted_N[end] - sorted_N[end + 1]) / 2)


def _of_label_one(
    name: str,
    wanted: ArrayLike,
    given: ArrayLike,
    of_counts: Callable[[FloatArray, FloatArray, FloatArray], FloatArray],
) -> Measured:
    wanted_N, given_N = _checked(wanted, given)
    hit_N = (wanted_N == 1) & (given_N == 1)
    statistics = np.stack([hit_N, given_N == 1, wanted_N == 1], axis=1).astype(np.float64)
    return Measured(name, statistics, lambda sums: of_counts(sums[..., 0], sums[..., 1], sums[..., 2]))


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Return part / whole; 0 where the whole is 0."""
    return np.asarray(np.divide(part, whole, out=np.zeros_like(part), where=whole > 0))


def _checked(wanted: ArrayLike, given: ArrayLike) -> tuple[LabelArray, LabelArray]:
    wanted_N, given_N = np.asarray(wanted, dtype=np.int64), np.asarray(given, dtype=np.int64)
    if wanted_N.shape != given_N.shape or wanted_N.ndim != 1:
        raise UserError(f"{given_N.size} labels given for {wanted_N.size} items: there must be one for each")
    if not len(wanted_N):
        raise UserError("there are no labels to measure: the set of items is empty")
    return wanted_N, given_N
