"""Candidate pairs: documents that share a band key.

There are two rounds of tasks. First every task sorts the keys of some parts; then every task takes a range of key
values from all of these and pairs the documents with the same key. A key that many documents share would give too
many pairs: each of those documents is paired only with the first few of them and with the next few. That keeps
copies connected, which is all that clusters need.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster.file_tasks import FileTask
from cluster.storage import atomic_file
from data_prep.corpus.text_store import Part
from data_prep.corpus.work import Work
from data_prep.dedup import pairs
from data_prep.dedup.catalogue import Catalogue
from data_prep.dedup.config import NUM_BANDS, NearDuplicatesConfig

# Keys that a task sorts at a time: 16 bytes each with its document, and as much again while sorting.
KEYS_PER_TASK = 4_000_000
# Keys whose pairs are made at a time: a key may give up to 15 pairs.
KEYS_PER_STEP = 250_000
_MAX_FULLY_PAIRED = 32
_NUM_FIRST, _NUM_NEXT = 2, 6
_KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class _KeyRange:
    """One of `num_ranges` equal ranges of key values."""

    number: int
    num_ranges: int

    def bounds(self) -> tuple[int, int]:
        """Return the smallest and largest key."""
        return (
            (self.number << 64) // self.num_ranges,
            ((self.number + 1 << 64) // self.num_ranges) - 1,
        )


def find_candidates(documents: Catalogue, config: NearDuplicatesConfig, work: Work) -> list[Path]:
    """Write files of candidate pairs (smaller document first); their number depends on the number of keys only."""
    key = [documents.key, config.model_dump()]
    chunks = _chunks(documents)
    sorting = [
        FileTask(
            f"near-keys {first}-{last}",
            work.path("near-keys", [key, first, last], "npy"),
            (documents, first, last),
        )
        for first, last in chunks
    ]
    sizes_bytes = [
        (documents.offsets[last] - documents.offsets[first]) * NUM_BANDS * _KEY_BYTES
        for first, last in chunks
    ]
    work.run("near duplicates: keys", sort_keys, sorting, sizes_bytes)
    num_ranges = -(-documents.num_documents * NUM_BANDS // KEYS_PER_TASK)
    pairing = [
        FileTask(
            f"near-pairs {number}",
            work.path("near-pairs", [key, number, num_ranges], "npy"),
            (
                tuple(task.output for task in sorting),
                _KeyRange(number, num_ranges),
                documents.num_documents,
            ),
        )
        for number in range(num_ranges)
    ]
    work.run("near duplicates: pairs", pair_up, pairing, [sum(sizes_bytes) // num_ranges] * num_ranges)
    return [task.output for task in pairing]


def sort_keys(documents: Catalogue, first_part: int, last_part: int, output: Path) -> None:
    """Task: write the sorted keys of some parts' documents and the documents: an array [2, num_keys]."""
    keys, owners = [], []
    for part in range(first_part, last_part):
        bands = Part(documents.part_paths[part]).bands(documents.rows(part))
        numbers = np.arange(documents.offsets[part], documents.offsets[part + 1])
        keys.append(bands.ravel())
        owners.append(np.repeat(numbers, bands.shape[1]))
    with atomic_file(output) as file:
        np.save(file, np.stack(_sort_by_key(np.concatenate(keys), np.concatenate(owners).astype(np.uint64))))


def pair_up(sorted_keys: Sequence[Path], in_range: _KeyRange, num_documents: int, output: Path) -> None:
    """Task: write the pairs of documents with a common key in the range."""
    low, high = in_range.bounds()
    slices = []
    for path in sorted_keys:
        entries = np.load(path, mmap_mode="r")
        begin = np.searchsorted(entries[0], np.uint64(low), side="left")
        end = np.searchsorted(entries[0], np.uint64(high), side="right")
        slices.append(np.array(entries[:, begin:end]))
    keys, owners = _sort_by_key(*np.concatenate(slices, axis=1))
    documents = owners.astype(np.int64)
    made = [np.empty(0, np.uint64)]
    done = 0
    while done < len(keys):
        # Up to the end of the bucket of the step's last key.
        last = keys[done : done + KEYS_PER_STEP][-1]
        upto = int(keys.searchsorted(last, side="right"))
        made.append(pairs.encode(*bucket_pairs(keys[done:upto], documents[done:upto]), num_documents))
        done = upto
    pairs.write(output, pairs.sort_unique(np.concatenate(made)))


def bucket_pairs(
    keys: NDArray[np.uint64], documents: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return pairs (smaller, larger) within runs of equal `keys`, in which documents ascend."""
    begins_run = np.concatenate([[True], keys[1:] != keys[:-1]]) if len(keys) else np.empty(0, bool)
    starts = np.flatnonzero(begins_run)
    sizes = np.diff(starts, append=len(keys))
    # Most keys belong to one document only; these are removed first.
    place = np.repeat(sizes, sizes) > 1
    documents = documents[place]
    sizes = sizes[sizes > 1]
    size_of = np.repeat(sizes, sizes)
    position = np.arange(len(documents)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_large = size_of > _MAX_FULLY_PAIRED
    first, second = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for step in range(1, min(_MAX_FULLY_PAIRED, int(sizes.max(initial=1)))):
        paired = position >= step
        if step > _NUM_NEXT:
            paired &= ~is_large
        later = np.flatnonzero(paired)
        first.append(documents[later - step])
        second.append(documents[later])
    for head in range(_NUM_FIRST):
        later = np.flatnonzero(is_large & (position > head))
        first.append(documents[later - position[later] + head])
        second.append(documents[later])
    return np.concatenate(first), np.concatenate(second)


def _sort_by_key(
    keys: NDArray[np.uint64], owners: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Sort both by key; the sort is stable, so that the documents of equal keys ascend."""
    order = np.argsort(keys, kind="stable")
    return keys[order], owners[order]


def _chunks(documents: Catalogue) -> list[tuple[int, int]]:
    """Return ranges of parts with about `KEYS_PER_TASK` keys each."""
    chunks, first = [], 0
    for last in range(1, len(documents.part_paths) + 1):
        num_keys = (documents.offsets[last] - documents.offsets[first]) * NUM_BANDS
        if num_keys >= KEYS_PER_TASK or last == len(documents.part_paths):
            chunks.append((first, last))
            first = last
    return chunks
