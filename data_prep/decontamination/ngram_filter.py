"""A fast filter for the words of a corpus at which an n-gram of an evaluation set may begin."""

import numpy as np
from numpy.typing import NDArray

from data_prep.dedup.shingles import mix, polynomials
from data_prep.dedup.words import Words

# With two bits for each n-gram one lookup in about 250 is a false positive; larger tables exceed the core's cache.
_SLOTS_PER_NGRAM = 32
_MIN_SLOT_BITS, _MAX_SLOT_BITS = 16, 27
_BIT_IN_BYTE, _BYTE_SHIFT = np.uint64(7), np.uint64(3)
_BIT_MASKS = np.array([1 << bit for bit in range(8)], np.uint8)


class NgramFilter:
    """A Bloom filter of n-gram hashes (of `shingles.polynomials`)."""

    def __init__(self, ngram_words: int, hashes: NDArray[np.uint64]) -> None:
        self._ngram_words = ngram_words
        num_bits = (len(hashes) * _SLOTS_PER_NGRAM).bit_length()
        num_bits = min(max(num_bits, _MIN_SLOT_BITS), _MAX_SLOT_BITS)
        self._slot_shift = np.uint64(64 - num_bits)
        self._octets = np.zeros(1 << num_bits - 3, np.uint8)
        for slots in (self._slots(hashes), self._slots(mix(hashes.copy()))):
            octets = (slots >> _BYTE_SHIFT).view(np.int64)
            np.bitwise_or.at(self._octets, octets, _BIT_MASKS[slots & _BIT_IN_BYTE])

    def starts(self, words: Words) -> NDArray[np.int64]:
        """Return the words at which a known n-gram may begin; it may extend into the next document."""
        ngrams = polynomials(words.hashes, self._ngram_words)
        starts = np.flatnonzero(self._is_set(self._slots(ngrams)))
        # The second bit is tested for the few that remain, because later steps cost more.
        return starts[self._is_set(self._slots(mix(ngrams[starts])))]

    def _slots(self, hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
        # The upper bits of a product depend on all of its factors' bits.
        return hashes >> self._slot_shift

    def _is_set(self, slots: NDArray[np.uint64]) -> NDArray[np.bool_]:
        octets = self._octets[(slots >> _BYTE_SHIFT).view(np.int64)]
        slots &= _BIT_IN_BYTE
        octets >>= slots.astype(np.uint8)
        octets &= np.uint8(1)
        return octets.view(np.bool_)
