"""What the tasks that label have in common."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from finetune.examples import Labelled
from finetune.metrics.classification import best_threshold
from pretrain.randomness import keyed_generator

Item = TypeVar("Item")


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


def drawn(items: Sequence[Item], most: int | None, seed: int, purpose: str) -> list[Item]:
    """`most` of the items, drawn by seed and in their order; all for None."""
    if most is None or most >= len(items):
        return list(items)
    chosen = keyed_generator(seed, f"task-{purpose}").permutation(len(items))[:most]
    return [items[index] for index in np.sort(chosen)]


def held_out(items: Sequence[Item], seed: int) -> tuple[list[Item], list[Item]]:
    """(what is left, one item in twenty but at most 500), drawn by seed."""
    order = keyed_generator(seed, "task-hold-out").permutation(len(items))
    num_valid = min(500, max(1, len(items) // 20)) if len(items) > 1 else 0
    chosen = set(order[:num_valid].tolist())
    left = [item for number, item in enumerate(items) if number not in chosen]
    return left, [items[number] for number in sorted(chosen)]


def label_shares(items: Sequence[Labelled], labels: Sequence[str], split: str) -> dict[str, float]:
    """The share of each label in a split, as facts."""
    return {
        f"{split}_share_{name}": sum(item.label == number for item in items) / max(1, len(items))
        for number, name in enumerate(labels)
    }
