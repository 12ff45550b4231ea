"""What the tasks that label have in common."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from finetune.examples import Labelled
from finetune.metrics.classification import best_threshold


def wanted_labels(items: Sequence[Labelled]) -> NDArray[np.int64]:
    """Of every item. UserError when there is none."""
    if not items:
        raise UserError("there is no item to judge: the split is empty")
    return np.array([item.label for item in items], dtype=np.int64)


def given_labels(probability_NC: NDArray[np.float64], threshold: float | None) -> NDArray[np.int64]:
    """The likelier label of every item; with a threshold, the second of two labels from that probability on."""
    if threshold is not None:
        return np.asarray(probability_NC[:, 1] >= threshold, dtype=np.int64)
    return np.asarray(probability_NC.argmax(axis=1), dtype=np.int64)


def chosen_threshold(items: Sequence[Labelled], probability_NC: NDArray[np.float64]) -> float | None:
    """The one of the highest F1 on these items; None where none of them has the second label."""
    if not any(item.label == 1 for item in items):
        return None
    return best_threshold(wanted_labels(items), probability_NC[:, 1])


def label_shares(items: Sequence[Labelled], labels: Sequence[str], split: str) -> dict[str, float]:
    """The share of each label in a split, as facts."""
    return {
        f"{split}_share_{name}": sum(item.label == number for item in items) / max(1, len(items))
        for number, name in enumerate(labels)
    }
