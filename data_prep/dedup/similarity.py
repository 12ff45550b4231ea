"""Verification of candidate pairs by the exact Jaccard similarity of their n-gram sets."""

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster.file_tasks import FileTask
from data_prep.corpus.work import Work
from data_prep.dedup import pairs
from data_prep.dedup.catalogue import Catalogue
from data_prep.dedup.config import NGRAM_WORDS, NearDuplicatesConfig
from data_prep.text.shingles import hash_words, shingles

PAIRS_PER_TASK = 250_000
# The documents of a step's pairs are in memory together: at most 500 of the largest file size.
PAIRS_PER_STEP = 250
_DOCUMENTS_AT_A_TIME = 32
CACHE_BYTES = 256 << 20
# Tasks begin at multiples of so many documents.
BLOCK_DOCUMENTS = 1024
# Roughly what the comparison of a pair reads; only for the progress bar.
_BYTES_PER_PAIR = 10_000


def verify_candidates(
    candidates: Sequence[Path], documents: Catalogue, config: NearDuplicatesConfig, work: Work
) -> list[Path]:
    """Write files of pairs that connect the same documents as all candidate pairs of similarity >= `threshold`.

    Pairs that would close a cycle are left out.
    """
    cuts = _cuts(candidates, documents.num_documents)
    tasks, sizes_bytes = [], []
    for first, last, num_pairs in cuts:
        key = [documents.key, config.model_dump(), first, last]
        output = work.path("near-verified", key, "npy")
        arguments = (tuple(candidates), documents, config, first, last)
        tasks.append(FileTask(f"near-verified {first}-{last}", output, arguments))
        sizes_bytes.append(num_pairs * _BYTES_PER_PAIR)
    if tasks:
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
    sets = _NgramSets(documents)
    forest = _Forest(codes, num_documents)
    kept = [codes[:0]]
    for begin in range(0, len(codes), PAIRS_PER_STEP):
        step = codes[begin : begin + PAIRS_PER_STEP]
        step = step[~forest.connected_pairs(step)]
        sets.load(np.unique(np.concatenate(pairs.decode(step, num_documents))))
        kept.append(
            step[
                [_join_similar(code, sets, forest, config.threshold, num_documents) for code in step.tolist()]
            ]
        )
    pairs.write(output, np.concatenate(kept))


def is_similar(left: NDArray[np.uint64], right: NDArray[np.uint64], threshold: float) -> bool:
    """Return whether two sets (sorted, each member once) have a Jaccard similarity of at least `threshold`."""
    smaller, larger = sorted((len(left), len(right)))
    if smaller < threshold * larger:
        return False
    union = np.concatenate([left, right])
    union.sort()
    num_common = int(np.count_nonzero(union[1:] == union[:-1]))
    return num_common >= threshold * (len(union) - num_common)


def _join_similar(
    code: int, sets: "_NgramSets", forest: "_Forest", threshold: float, num_documents: int
) -> bool:
    """Connect the pair if it is similar and not connected yet, and return whether it was connected now."""
    left, right = divmod(code, num_documents)
    if forest.are_connected(left, right) or not is_similar(sets[left], sets[right], threshold):
        return False
    forest.join(left, right)
    return True


class _NgramSets:
    """A cache of documents' n-gram sets; the most recently used are kept, up to a size in bytes."""

    def __init__(self, documents: Catalogue) -> None:
        self._documents = documents
        self._sets: OrderedDict[int, NDArray[np.uint64]] = OrderedDict()
        self._num_bytes = 0

    def load(self, wanted: NDArray[np.int64]) -> None:
        """Load the sets of these documents, and evict others if there is no room."""
        missing = [document for document in wanted.tolist() if document not in self._sets]
        for document in wanted.tolist():
            if document in self._sets:
                self._sets.move_to_end(document)
        for begin in range(0, len(missing), _DOCUMENTS_AT_A_TIME):
            chunk = missing[begin : begin + _DOCUMENTS_AT_A_TIME]
            texts = self._documents.texts(np.array(chunk))
            ngrams = shingles(hash_words(texts), NGRAM_WORDS)
            for number, document in enumerate(chunk):
                own = pairs.sort_unique(ngrams.hashes[ngrams.offsets[number] : ngrams.offsets[number + 1]])
                self._sets[document] = own
                self._num_bytes += own.nbytes
        while self._num_bytes > CACHE_BYTES and len(self._sets) > len(wanted):
            self._num_bytes -= self._sets.popitem(last=False)[1].nbytes

    def __getitem__(self, document: int) -> NDArray[np.uint64]:
        return self._sets[document]


class _Forest:
    """A union-find over the documents of some pairs."""

    def __init__(self, codes: NDArray[np.uint64], num_documents: int) -> None:
        self._num_documents = num_documents
        ends = np.concatenate(pairs.decode(codes, num_documents))
        self._documents = pairs.sort_unique(ends.view(np.uint64)).view(np.int64)
        self._places = {document: place for place, document in enumerate(self._documents.tolist())}
        self._parents = np.arange(len(self._documents))

    def connected_pairs(self, codes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return for each pair whether it is connected."""
        while np.any(self._parents[self._parents] != self._parents):
            self._parents = self._parents[self._parents]
        left, right = pairs.decode(codes, self._num_documents)
        places = np.searchsorted(self._documents, left), np.searchsorted(self._documents, right)
        connected: NDArray[np.bool_] = self._parents[places[0]] == self._parents[places[1]]
        return connected

    def are_connected(self, left: int, right: int) -> bool:
        return self._root(left) == self._root(right)

    def join(self, left: int, right: int) -> None:
        low, high = sorted((self._root(left), self._root(right)))
        self._parents[high] = low

    def _root(self, document: int) -> int:
        place = self._places[document]
        while (parent := int(self._parents[place])) != place:
            place = parent
        return place


def _cuts(candidates: Sequence[Path], num_documents: int) -> list[tuple[int, int, int]]:
    """Return ranges of first documents with about `PAIRS_PER_TASK` pairs each, and their number of pairs."""
    blocks = np.arange(0, num_documents + BLOCK_DOCUMENTS, BLOCK_DOCUMENTS).clip(max=num_documents)
    num_pairs = np.zeros(len(blocks) - 1, np.int64)
    bounds = blocks[:-1].astype(np.uint64) * np.uint64(num_documents)
    for path in candidates:
        codes = np.load(path, mmap_mode="r")
        num_pairs += np.diff(np.searchsorted(codes, bounds), append=len(codes))
    cuts, first, waiting = [], 0, 0
    for block, num_in_block in enumerate(num_pairs.tolist(), start=1):
        waiting += num_in_block
        if waiting >= PAIRS_PER_TASK or (waiting and block == len(num_pairs)):
            cuts.append((int(blocks[first]), int(blocks[block]), waiting))
            first, waiting = block, 0
    return cuts
