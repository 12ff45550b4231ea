"""Samples and splits of a task's items, drawn by seed."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from pretrain.randomness import keyed_generator

Item = TypeVar("Item")


def drawn(items: Sequence[Item], most: int | None, seed: int, purpose: str) -> list[Item]:
    """Return `most` items, drawn by seed, in their original order; all if `most` is None."""
    if most is None or most >= len(items):
        return list(items)
    chosen = keyed_generator(seed, f"task-{purpose}").permutation(len(items))[:most]
    return [items[index] for index in np.sort(chosen)]


def held_out(
    items: Sequence[Item],
    seed: int,
    *,
    group_of: Callable[[Item], object] | None = None,
    usable: Callable[[Item], bool] | None = None,
) -> tuple[list[Item], list[Item]]:
    """Return (the rest, the held-out items: one in twenty, at most 500), drawn by seed; a single item is not held out.

    Items of a group stay together, unless all items are of one group. Groups without a `usable` item are not held out.
    """
    order = keyed_generator(seed, "task-hold-out").permutation(len(items)).tolist()
    num_valid = min(500, max(1, len(items) // 20)) if len(items) > 1 else 0
    groups: dict[object, list[int]] = {}
    for number in order:
        groups.setdefault(number if group_of is None else group_of(items[number]), []).append(number)
    if len(groups) == 1:
        groups = {number: [number] for number in order}
    chosen: set[int] = set()
    for group in groups.values():
        if len(chosen) >= num_valid:
            break
        if usable is None or any(usable(items[number]) for number in group):
            chosen.update(group)
    left = [item for number, item in enumerate(items) if number not in chosen]
    return left, [items[number] for number in sorted(chosen)]


def learnt_and_chosen_by(
    train: Sequence[Item], valid: Sequence[Item], test: Sequence[Item]
) -> tuple[list[Item], list[Item]]:
    """Return (train, valid); ([], test) if there is no validation item.

    Without validation data nothing can be chosen, so nothing is trained, and the test items are returned only to have a
    validation split.
    """
    return (list(train), list(valid)) if valid else ([], list(test))
