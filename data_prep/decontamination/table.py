"""N-grams of evaluation texts, and which of the texts a document contains."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_prep.dedup.shingles import polynomials
from data_prep.dedup.words import Words

_MIN_FILTER_BITS, _MAX_FILTER_BITS = 16, 24
# Slots per n-gram: one lookup in so many is a false alarm.
_SLOTS_PER_NGRAM = 32


@dataclass(frozen=True, slots=True)
class TextHit:
    """Document `document` contains text `text`: `share` of its counted n-grams."""

    document: int
    text: int
    share: float


class NgramTable:
    """N-grams of one length: `hashes[i]` occurs in text `owners[i]` (sorted by both).

    A document contains text t when it holds `needed[t]` of its n-grams.
    """

    def __init__(
        self,
        ngram_words: int,
        hashes: NDArray[np.uint64],
        owners: NDArray[np.int64],
        needed: NDArray[np.int64],
    ) -> None:
        self.ngram_words, self.hashes, self.owners, self.needed = ngram_words, hashes, owners, needed
        self._num_counted = np.bincount(owners, minlength=len(needed))
        num_bits = int(len(hashes) * _SLOTS_PER_NGRAM).bit_length()
        num_bits = min(max(num_bits, _MIN_FILTER_BITS), _MAX_FILTER_BITS)
        self._slot_shift = np.uint64(64 - num_bits)
        self._filter = np.zeros(1 << num_bits, bool)
        self._filter[hashes >> self._slot_shift] = True

    def hits(self, words: Words) -> list[TextHit]:
        """Every contained text, by document; of one document the fullest first."""
        if not len(self.hashes):
            return []
        # Runs across two documents are looked up as well: cheaper than leaving them out, and nearly nothing hits.
        ngrams = polynomials(words.hashes, self.ngram_words)
        starts = np.flatnonzero(self._filter[(ngrams >> self._slot_shift).view(np.int64)])
        documents = np.searchsorted(words.offsets, starts, side="right") - 1
        inside = starts + self.ngram_words <= words.offsets[documents + 1]
        starts, documents = starts[inside], documents[inside]
        if not len(starts):
            return []
        return [
            hit
            for d in np.unique(documents)
            for hit in self._contained(int(d), ngrams[starts[documents == d]])
        ]

    def _contained(self, document: int, ngrams: NDArray[np.uint64]) -> list[TextHit]:
        ngrams = np.unique(ngrams)
        begins = np.searchsorted(self.hashes, ngrams, side="left")
        ends = np.searchsorted(self.hashes, ngrams, side="right")
        owners = [self.owners[begin:end] for begin, end in zip(begins, ends, strict=True) if end > begin]
        if not owners:
            return []
        texts, num_held = np.unique(np.concatenate(owners), return_counts=True)
        is_contained = num_held >= self.needed[texts]
        texts, shares = texts[is_contained], (num_held / self._num_counted[texts])[is_contained]
        order = np.lexsort((texts, -shares))
        return [TextHit(document, int(texts[place]), float(shares[place])) for place in order]


def ngram_entries(
    texts: Sequence[NDArray[np.uint64]], ngram_words: int, max_sharing_texts: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The counted n-grams of texts given as word hashes, and whose they are, sorted by both."""
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
