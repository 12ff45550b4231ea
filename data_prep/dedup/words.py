"""Word hashes of texts, vectorized over arrays.

A word is a maximal run of letters, digits, underscores and bytes from 0x80 on (UTF-8 beyond ASCII); case counts.
Runs longer than `MAX_WORD_BYTES` (encoded data) are cut into words of that length and a rest. Everything else
separates words, so a text of punctuation only has none.
"""

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
