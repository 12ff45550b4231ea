"""Tables of evaluation texts' n-grams, which find the texts that a document contains."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_prep.dedup.shingles import polynomials
from data_prep.dedup.words import Words


@dataclass(frozen=True, slots=True)
class TextHit:
    """Document `document` contains text `text`, with the share `share` of its counted n-grams."""

    document: int
    text: int
    share: float


class NgramTable:
    """N-grams of one length: `hashes[i]` occurs in text `owners[i]` (sorted by both).

    A document contains text t if it has `needed[t]` of its n-grams.
    """

    def __init__(
        self,
        ngram_words: int,
        hashes: NDArray[np.uint64],
        owners: NDArray[np.int64],
        needed: NDArray[np.int64],
    ) -> None:
        self._ngram_words, self._hashes, self._owners, self._needed = ngram_words, hashes, owners, needed
        self._num_counted = np.bincount(owners, minlength=len(needed))

    def num_counted(self, text: int) -> int:
        """Return the number of different n-grams of a text that are counted; 0 for texts of another table."""
        return int(self._num_counted[text])

    def hits(self, words: Words, starts: NDArray[np.int64]) -> list[TextHit]:
        """Return every text contained in a document, by the n-grams that begin at the words `starts` (ascending)."""
        documents = np.searchsorted(words.offsets, starts, side="right") - 1
        is_inside = starts + self._ngram_words <= words.offsets[documents + 1]
        starts, documents = starts[is_inside], documents[is_inside]
        if not len(starts) or not len(self._hashes):
            return []
        runs = words.hashes[starts[:, None] + np.arange(self._ngram_words)]
        ngrams = polynomials(runs.ravel(), self._ngram_words)[:: self._ngram_words]
        places = np.searchsorted(self._hashes, ngrams).clip(max=len(self._hashes) - 1)
        is_known = self._hashes[places] == ngrams
        ngrams, documents = ngrams[is_known], documents[is_known]
        return [
            hit
            for document in np.unique(documents).tolist()
            for hit in self._contained(document, np.unique(ngrams[documents == document]))
        ]

    def _contained(self, document: int, ngrams: NDArray[np.uint64]) -> list[TextHit]:
        """Return the texts that a document with these known n-grams contains."""
        begins = np.searchsorted(self._hashes, ngrams, side="left").tolist()
        ends = np.searchsorted(self._hashes, ngrams, side="right").tolist()
        owners = np.concatenate([self._owners[begin:end] for begin, end in zip(begins, ends, strict=True)])
        texts, num_found = np.unique(owners, return_counts=True)
        is_contained = num_found >= self._needed[texts]
        texts, num_found = texts[is_contained], num_found[is_contained]
        shares = (num_found / self._num_counted[texts]).tolist()
        return [TextHit(document, *hit) for hit in zip(texts.tolist(), shares, strict=True)]


def ngram_entries(
    texts: Sequence[NDArray[np.uint64]], ngram_words: int, max_sharing_texts: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the counted n-grams of texts given as word hashes, and their texts, sorted by both."""
    sets = [np.unique(polynomials(words, ngram_words)) for words in texts]
    hashes = np.concatenate([np.empty(0, np.uint64), *sets])
    owners = np.repeat(np.arange(len(sets)), [len(ngrams) for ngrams in sets])
    _, kinds, num_texts = np.unique(hashes, return_inverse=True, return_counts=True)
    is_rare = num_texts[kinds] <= max_sharing_texts
    has_rare = np.bincount(owners[is_rare], minlength=len(sets)) > 0
    counted = is_rare | ~has_rare[owners]
    hashes, owners = hashes[counted], owners[counted]
    order = np.lexsort((owners, hashes))
    return hashes[order], owners[order]
