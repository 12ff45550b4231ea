"""Signatures, computed from the words of documents: band keys, and the evaluation texts that they contain."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from data_prep.decontamination.index import ContaminationIndex
from data_prep.dedup.config import NearDuplicatesConfig
from data_prep.dedup.minhash import band_keys
from data_prep.dedup.shingles import shingles
from data_prep.dedup.words import hash_words
from data_prep.documents import Rejection

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
        ngrams = shingles(words, config.ngram_words)
        keys = band_keys(ngrams, config)
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
