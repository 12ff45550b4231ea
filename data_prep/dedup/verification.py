"""Which candidate pairs are near duplicates: the true Jaccard similarity of their n-gram sets."""

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster.ray_session import FileTask
from data_prep.dedup import pairs
from data_prep.dedup.catalogue import Catalogue
from data_prep.dedup.config import NearDuplicatesConfig
from data_prep.dedup.shingles import shingles
from data_prep.dedup.words import hash_words
from data_prep.work import Work

_PAIRS_PER_TASK = 250_000
_CACHE_BYTES = 256 << 20
# The finest cut of the documents into tasks.
_BLOCK_DOCUMENTS = 1024
# Only for the progress bar: what comparing a pair reads, about.
_BYTES_PER_PAIR = 10_000


def verified_pairs(
    candidates: Sequence[Path], documents: Catalogue, config: NearDuplicatesConfig, work: Work
) -> list[Path]:
    """Make files of pairs that connect exactly the documents which candidate pairs of similarity >= `threshold`
    connect. Pairs that would close a circle are left out."""
    cuts = _cuts(candidates, documents.num_documents)
    tasks, sizes_bytes = [], []
    for first, last, num_pairs in cuts:
        key = [documents.key, config.model_dump(), first, last]
        output = work.path("near-verified", key, "npy")
        arguments = (tuple(candidates), documents, config, first, last)
        tasks.append(FileTask(f"near-verified {first}-{last}", output, arguments))
        sizes_bytes.append(num_pairs * _BYTES_PER_PAIR)
    work.run("near duplicates: similarity", verify, tasks, sizes_bytes)
    return [task.output for task in tasks]


def verify(
    candidates: Sequence[Path],
    documents: Catalogue,
    config: NearDuplicatesConfig,
    first: int,
    last: int,
    output: Path,
) -> None:
    """Task: check the pairs whose first document is in [first, last)."""
    num_documents = documents.num_documents
    codes = pairs.read(candidates, first, last, num_documents)
    sets = _NgramSets(documents, config.ngram_words)
    forest = _Forest()
    kept = []
    for position, (left, right) in enumerate(
        zip(*(side.tolist() for side in pairs.decode(codes, num_documents)), strict=True)
    ):
        if forest.are_joined(left, right):
            continue
        if is_similar(sets[left], sets[right], config.threshold):
            forest.join(left, right)
            kept.append(position)
    pairs.write(output, codes[kept])


def is_similar(left: NDArray[np.uint64], right: NDArray[np.uint64], threshold: float) -> bool:
    """Whether two sets (sorted, each member once) have a Jaccard similarity of at least `threshold`."""
    smaller, larger = sorted((len(left), len(right)))
    if smaller < threshold * larger:
        return False
    union = np.concatenate([left, right])
    union.sort()
    num_common = int(np.count_nonzero(union[1:] == union[:-1]))
    return num_common >= threshold * (len(union) - num_common)


class _NgramSets:
    """The n-gram sets of documents; the last used ones are kept."""

    def __init__(self, documents: Catalogue, ngram_words: int) -> None:
        self._documents = documents
        self._ngram_words = ngram_words
        self._sets: OrderedDict[int, NDArray[np.uint64]] = OrderedDict()
        self._num_bytes = 0

    def __getitem__(self, document: int) -> NDArray[np.uint64]:
        found = self._sets.get(document)
        if found is not None:
            self._sets.move_to_end(document)
            return found
        texts = self._documents.texts(np.array([document]))
        made = np.unique(shingles(hash_words(texts), self._ngram_words).hashes)
        self._sets[document] = made
        self._num_bytes += made.nbytes
        while self._num_bytes > _CACHE_BYTES and len(self._sets) > 1:
            self._num_bytes -= self._sets.popitem(last=False)[1].nbytes
        return made


class _Forest:
    """Which documents are connected by what was joined so far."""

    def __init__(self) -> None:
        self._parents: dict[int, int] = {}

    def _root(self, document: int) -> int:
        parents = self._parents
        while (parent := parents.get(document, document)) != document:
            parents[document] = parents.get(parent, parent)
            document = parent
        return document

    def are_joined(self, left: int, right: int) -> bool:
        return self._root(left) == self._root(right)

    def join(self, left: int, right: int) -> None:
        low, high = sorted((self._root(left), self._root(right)))
        self._parents[high] = low


def _cuts(candidates: Sequence[Path], num_documents: int) -> list[tuple[int, int, int]]:
    """Ranges of first documents with about `_PAIRS_PER_TASK` pairs each, and their number of pairs."""
    blocks = np.arange(0, num_documents + _BLOCK_DOCUMENTS, _BLOCK_DOCUMENTS).clip(max=num_documents)
    num_pairs = np.zeros(len(blocks) - 1, np.int64)
    bounds = blocks[:-1].astype(np.uint64) * np.uint64(num_documents)
    for path in candidates:
        codes = np.load(path, mmap_mode="r")
        num_pairs += np.diff(np.searchsorted(codes, bounds), append=len(codes))
    cuts, first, waiting = [], 0, 0
    for block, num_in_block in enumerate(num_pairs.tolist(), start=1):
        waiting += num_in_block
        if waiting >= _PAIRS_PER_TASK or (waiting and block == len(num_pairs)):
            cuts.append((int(blocks[first]), int(blocks[block]), waiting))
            first, waiting = block, 0
    return cuts
