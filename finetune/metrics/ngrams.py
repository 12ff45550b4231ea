"""Counts of n-grams of tokens."""

from collections import Counter
from collections.abc import Iterable, Sequence

NGram = tuple[str, ...]


def ngrams(tokens: Sequence[str], order: int) -> Counter[NGram]:
    """How often each run of `order` tokens occurs."""
    return Counter(zip(*(tokens[start:] for start in range(order)), strict=False))


def most_of_each(counts: Iterable[Counter[NGram]]) -> Counter[NGram]:
    """The union: of each n-gram the most that any of the counts holds."""
    union: Counter[NGram] = Counter()
    for one in counts:
        union |= one
    return union
