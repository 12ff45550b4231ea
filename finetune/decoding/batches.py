"""Texts of like length are written side by side."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence

from finetune.systems.base import OnProgress


def occurrences(sources: Iterable[Hashable]) -> list[int]:
    """Of every source, how many equal ones stand before it: a source given again asks for another sample."""
    seen: Counter[Hashable] = Counter()
    found = []
    for source in sources:
        found.append(seen[source])
        seen[source] += 1
    return found


def write_in_batches(
    lengths: Sequence[int],
    batch: int,
    write: Callable[[Sequence[int]], Sequence[str]],
    on_progress: OnProgress,
) -> list[str]:
    """What `write` makes of every number in `range(len(lengths))`, asked for at most `batch` at a time.

    The longest come first: what does not fit into memory fails at once.
    """
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    written = [""] * len(lengths)
    for first in range(0, len(order), batch):
        numbers = order[first : first + batch]
        for number, text in zip(numbers, write(numbers), strict=True):
            written[number] = text
        on_progress(first + len(numbers))
    return written
