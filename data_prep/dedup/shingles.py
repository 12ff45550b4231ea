"""Hashes of word n-grams (shingles)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_prep.dedup.words import Words

# Odd; the place value of a word in its n-gram.
NGRAM_BASE = 0xD1342543DE82EF95
_WORD_MASK = (1 << 64) - 1
# Shifts and factors of MurmurHash3's finaliser.
_SHIFT = np.uint64(33)
_FACTORS = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))


@dataclass(frozen=True, slots=True)
class Shingles:
    """The hashed n-grams of several documents, in the order of the text, including repeats.

    Document d has `hashes[offsets[d]:offsets[d + 1]]`; `documents` is the document of each n-gram.
    """

    hashes: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    documents: NDArray[np.int64]


def shingles(words: Words, ngram_words: int) -> Shingles:
    """Hash every run of `ngram_words` words of a document; those with fewer words have none."""
    num_words = np.diff(words.offsets)
    counts = np.maximum(num_words - (ngram_words - 1), 0)
    documents = np.repeat(np.arange(len(counts)), counts)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    # Where each n-gram begins: shifted by the words at which no n-gram of an earlier document begins.
    starts = np.arange(len(documents)) + (words.offsets[:-1] - offsets[:-1])[documents]
    hashes = mix(polynomials(words.hashes, ngram_words)[starts])
    return Shingles(hashes, offsets, documents)


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble `values` in place, one-to-one, so that every bit depends on all bits; return them."""
    values ^= values >> _SHIFT
    for factor in _FACTORS:
        values *= factor
        values ^= values >> _SHIFT
    return values


def polynomials(hashes: NDArray[np.uint64], ngram_words: int) -> NDArray[np.uint64]:
    """Return the sum of hash x NGRAM_BASE^(words that follow) over each run of `ngram_words`, modulo 2^64.

    Built from runs of 1, 2, 4, ... words, so that there are few passes for any length.
    """
    if len(hashes) < ngram_words:
        return np.empty(0, np.uint64)
    doubled, doubled_words = hashes, 1
    result: NDArray[np.uint64] | None = None
    result_words = 0
    while True:
        if ngram_words & doubled_words:
            result = doubled if result is None else _join(result, result_words, doubled, doubled_words)
            result_words += doubled_words
        if result_words == ngram_words:
            assert result is not None
            return result
        doubled = _join(doubled, doubled_words, doubled, doubled_words)
        doubled_words *= 2


def _join(
    left: NDArray[np.uint64], left_words: int, right: NDArray[np.uint64], right_words: int
) -> NDArray[np.uint64]:
    """Return runs of `left_words + right_words` words, from the runs that begin at each word."""
    factor = np.uint64(pow(NGRAM_BASE, right_words, _WORD_MASK + 1))
    num_runs = len(right) - left_words
    joined = left[:num_runs] * factor
    joined += right[left_words : left_words + num_runs]
    return joined
