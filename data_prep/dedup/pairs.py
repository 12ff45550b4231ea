"""Sorted files of document pairs.

A pair (a, b) of documents below n is one number, a x n + b. A sorted file of pairs can be read by ranges of the first
document: each task of a round reads its range from the files of all tasks of the previous round.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster.storage import atomic_file

# a x n + b must fit in 64 bits.
MAX_DOCUMENTS = 1 << 32


def encode(first: NDArray[np.int64], second: NDArray[np.int64], num_documents: int) -> NDArray[np.uint64]:
    """Return sorted pairs, each once."""
    codes = first.astype(np.uint64) * np.uint64(num_documents) + second.astype(np.uint64)
    return sort_unique(codes)


def sort_unique(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Sort `values` in place and return each once. Several times as fast as numpy's `unique`."""
    values.sort()
    is_first = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=is_first[1:])
    return values[is_first]


def decode(codes: NDArray[np.uint64], num_documents: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and second documents."""
    first, second = np.divmod(codes, np.uint64(num_documents))
    return first.astype(np.int64), second.astype(np.int64)


def write(path: Path, codes: NDArray[np.uint64]) -> None:
    """Write sorted pairs."""
    with atomic_file(path) as file:
        np.save(file, codes)


def read(paths: Sequence[Path], first: int, last: int, num_documents: int) -> NDArray[np.uint64]:
    """Return the pairs of all files whose first document is in [first, last), sorted, each once."""
    if first >= last:
        return np.empty(0, np.uint64)
    # The end of the last range may be 2^64 itself, which does not fit in a uint64.
    low, high = first * num_documents, last * num_documents - 1
    slices = []
    for path in paths:
        codes = np.load(path, mmap_mode="r")
        begin = np.searchsorted(codes, np.uint64(low), side="left")
        end = np.searchsorted(codes, np.uint64(high), side="right")
        slices.append(np.array(codes[begin:end]))
    return sort_unique(np.concatenate(slices))


def count(path: Path) -> int:
    """Return the number of pairs in a file."""
    return len(np.load(path, mmap_mode="r"))
