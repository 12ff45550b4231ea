"""Hashes of words and of word n-grams (shingles), vectorized over arrays."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_WORD_BYTES = 64
# Odd, so that multiplication is one-to-one; the digits are those of the golden ratio.
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_PIECE_BYTES = 8
_PIECE_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_PIECE_BYTES + 1)], np.uint64)
_FOLD_BITS, _LAST_FOLD_BITS = np.uint64(29), np.uint64(32)


@dataclass(frozen=True, slots=True)
class Words:
    """The hashed words of several documents, one after the other.

    Document d has `hashes[offsets[d]:offsets[d + 1]]`.
    """

    hashes: NDArray[np.uint64]
    offsets: NDArray[np.int64]


def hash_words(texts: Sequence[bytes]) -> Words:
    """Hash the words of each text; the same word has the same hash on every machine.

    Fastest on about 256 KB of text at a time, whose arrays stay in a core's cache.
    """
    # A NUL is not part of a word, so words do not extend into the next document. The padding at the end lets the last
    # word be read in complete pieces.
    buffer = b"\0".join(texts) + b"\0" * _PIECE_BYTES
    starts, ends = _cut(*_word_runs(np.frombuffer(buffer, np.uint8)))
    sizes_bytes = np.fromiter(map(len, texts), np.int64, len(texts))
    document_ends = np.cumsum(sizes_bytes + 1)
    offsets = np.concatenate([[0], np.searchsorted(starts, document_ends)]).astype(np.int64)
    return Words(_hash_runs(buffer, starts, ends - starts), offsets)


def _word_runs(octets: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first byte and the end of each run of word bytes; the last byte belongs to none."""
    # Unsigned, so that values below the range wrap to above it.
    is_word = ((octets | np.uint8(0x20)) - np.uint8(ord("a"))) < 26
    is_word |= (octets - np.uint8(ord("0"))) < 10
    is_word |= octets == ord("_")
    is_word |= octets >= 0x80
    edges = np.flatnonzero(is_word[1:] != is_word[:-1]) + 1
    if is_word[0]:
        edges = np.concatenate([[0], edges])
    return edges[0::2], edges[1::2]


def _cut(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut runs over `MAX_WORD_BYTES` into several words."""
    num_pieces = (ends - starts + (MAX_WORD_BYTES - 1)) // MAX_WORD_BYTES
    if not len(starts) or num_pieces.max() == 1:
        return starts, ends
    first = np.repeat(np.cumsum(num_pieces) - num_pieces, num_pieces)
    skipped_bytes = (np.arange(len(first)) - first) * MAX_WORD_BYTES
    piece_starts = np.repeat(starts, num_pieces) + skipped_bytes
    return piece_starts, np.minimum(piece_starts + MAX_WORD_BYTES, np.repeat(ends, num_pieces))


def _hash_runs(buffer: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Fold the words' 8-byte pieces, the last one padded with zeros (which no word contains)."""
    num_positions = len(buffer) - _PIECE_BYTES + 1
    piece_at = np.ndarray((num_positions,), "<u8", buffer, strides=(1,))
    hashes = piece_at[starts].astype(np.uint64, copy=False)
    hashes &= _PIECE_MASKS[np.minimum(lengths, _PIECE_BYTES)]
    hashes *= MULTIPLIER
    longer = np.flatnonzero(lengths > _PIECE_BYTES)
    done_bytes = _PIECE_BYTES
    while len(longer):
        rest_bytes = lengths[longer] - done_bytes
        pieces = piece_at[starts[longer] + done_bytes] & _PIECE_MASKS[np.minimum(rest_bytes, _PIECE_BYTES)]
        folded = hashes[longer]
        folded ^= folded >> _FOLD_BITS
        hashes[longer] = (folded + pieces) * MULTIPLIER
        done_bytes += _PIECE_BYTES
        longer = longer[rest_bytes > _PIECE_BYTES]
    hashes ^= hashes >> _LAST_FOLD_BITS
    return hashes


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
