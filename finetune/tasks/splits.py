"""Parts of a task's items, drawn by seed."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from pretrain.randomness import keyed_generator

Item = TypeVar("Item")


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
