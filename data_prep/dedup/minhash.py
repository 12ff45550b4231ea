"""Band keys: documents that share one are probably near duplicates.

One-permutation MinHash (Li, Owen, Zhang 2012): each n-gram hash falls into one of the bins, and a bin's value is
its smallest hash. Empty bins borrow from a full one that is chosen in the same way for all documents (Shrivastava 2017,
"Optimal Densification for Fast and Accurate Minwise Hashing"): the first full bin in the empty bin's own random order
of all bins. Values are combined in bands (locality-sensitive hashing): two documents of Jaccard similarity s agree in
at least one of b bands of r values with probability 1 - (1 - s^r)^b. The band's number is part of the key, so keys of
different bands are different.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from data_prep.dedup.config import NearDuplicatesConfig
from data_prep.dedup.shingles import Shingles, mix

_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_HALF_BITS = np.uint64(32)
# Probes for all documents at once; few bins are still empty after that, and those are filled per document.
_NUM_PROBES = 6


def band_keys(shingles: Shingles, config: NearDuplicatesConfig) -> NDArray[np.uint64]:
    """Return keys, shape [num_docs, num_bands]; the row of a document without n-grams is meaningless."""
    num_bands, rows_per_band = config.num_bands, config.rows_per_band
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
    for order in orders[:_NUM_PROBES]:
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
