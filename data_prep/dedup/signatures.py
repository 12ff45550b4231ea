"""Signatures of documents: MinHash band keys, and the evaluation texts that they contain."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from data_prep.decontamination.index import ContaminationIndex
from data_prep.dedup.config import NGRAM_WORDS, NUM_BANDS, ROWS_PER_BAND, NearDuplicatesConfig
from data_prep.documents import Rejection
from data_prep.text.shingles import Shingles, hash_words, mix, shingles

_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_HALF_BITS = np.uint64(32)
# Probes for all documents at once; few bins are still empty after that, and those are filled per document.
NUM_PROBES = 6


def band_keys(
    shingles: Shingles, num_bands: int = NUM_BANDS, rows_per_band: int = ROWS_PER_BAND
) -> NDArray[np.uint64]:
    """Return keys, shape [num_docs, num_bands]; the row of a document without n-grams is meaningless."""
    values = _fill_empty_bins(_bin_minima(shingles, num_bands * rows_per_band))
    row_factors = mix(np.arange(1, rows_per_band + 1, dtype=np.uint64)) | np.uint64(1)
    banded = values.reshape(-1, num_bands, rows_per_band) * row_factors
    salts = mix(np.arange(rows_per_band + 1, rows_per_band + 1 + num_bands, dtype=np.uint64))
    return mix(banded.sum(axis=2, dtype=np.uint64) + salts)


def _bin_minima(shingles: Shingles, num_bins: int) -> NDArray[np.uint64]:
    num_documents = len(shingles.offsets) - 1
    minima = np.full(num_documents * num_bins, _EMPTY, np.uint64)
    # The upper half of the hash, scaled to the number of bins.
    bins = (shingles.hashes >> _HALF_BITS) * np.uint64(num_bins) >> _HALF_BITS
    np.minimum.at(minima, shingles.documents * num_bins + bins.astype(np.int64), shingles.hashes)
    return minima.reshape(num_documents, num_bins)


def _fill_empty_bins(minima: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Fill the empty bins of all documents that have at least one full bin."""
    orders, ranks = _probe_orders(minima.shape[1])
    dense = minima.copy()
    documents, bins = np.nonzero(minima == _EMPTY)
    for order in orders[:NUM_PROBES]:
        borrowed = minima[documents, order[bins]]
        dense[documents, bins] = borrowed
        unfilled = borrowed == _EMPTY
        documents, bins = documents[unfilled], bins[unfilled]
    for document in np.unique(documents):
        full = np.flatnonzero(minima[document] != _EMPTY)
        if len(full):
            empty = bins[slice(*np.searchsorted(documents, [document, document + 1]))]
            nearest = ranks[np.ix_(empty, full)].argmin(axis=1)
            dense[document, empty] = minima[document, full[nearest]]
    return dense


@lru_cache(maxsize=4)
def _probe_orders(num_bins: int) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
    """Return orders [probe, bin], the bin that `bin` borrows from at a probe, and ranks [bin, other], the probe of
    `other`.

    They are made from hashes, not by a random generator, whose stream may change with its library.
    """
    draws = mix(np.arange(num_bins * num_bins, dtype=np.uint64)).reshape(num_bins, num_bins)
    orders = np.argsort(draws, axis=1, kind="stable")
    ranks = np.empty((num_bins, num_bins), np.uint16)
    np.put_along_axis(ranks, orders, np.arange(num_bins, dtype=np.uint16)[None, :], axis=1)
    return np.ascontiguousarray(orders.T), ranks


# Texts of about this total size are hashed at once, so that their arrays fit in a core's cache.
_GROUP_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Signature:
    """A document's signature; `bands` is None if near duplicates are not removed or it has no n-gram."""

    bands: bytes | None
    rejection: Rejection | None


def signatures(
    texts: Sequence[bytes], config: NearDuplicatesConfig, index: ContaminationIndex | None
) -> list[Signature]:
    """Return one signature per text, independent of the other texts. Fastest on hundreds of KB at a time."""
    return [signature for group in _groups(texts) for signature in _group_signatures(group, config, index)]


def _group_signatures(
    texts: Sequence[bytes], config: NearDuplicatesConfig, index: ContaminationIndex | None
) -> list[Signature]:
    bands: list[bytes | None] = [None] * len(texts)
    rejections: list[Rejection | None] = [None] * len(texts)
    if not config.enabled and index is None:
        return [Signature(None, None)] * len(texts)
    words = hash_words(texts)
    if index is not None:
        rejections = index.match(words)
    if config.enabled:
        ngrams = shingles(words, NGRAM_WORDS)
        keys = band_keys(ngrams)
        for document in np.flatnonzero(np.diff(ngrams.offsets)).tolist():
            bands[document] = keys[document].tobytes()
    return [Signature(*pair) for pair in zip(bands, rejections, strict=True)]


def _groups(texts: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    first, num_bytes = 0, 0
    for last, text in enumerate(texts, start=1):
        num_bytes += len(text)
        if num_bytes >= _GROUP_BYTES or last == len(texts):
            yield texts[first:last]
            first, num_bytes = last, 0
