"""The index of all evaluation texts' n-grams: built once, saved as a file, loaded by every worker."""

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from cluster.storage import fingerprint, sha256_bytes
from data_prep.decontamination.config import MATCH_RULE, DecontaminationConfig, MatchRule
from data_prep.decontamination.items import evaluation_texts
from data_prep.documents import Rejection
from data_prep.text.shingles import Words, hash_words, mix, polynomials

# With two bits for each n-gram one lookup in about 250 is a false positive; larger tables exceed the core's cache.
_SLOTS_PER_NGRAM = 32
_MIN_SLOT_BITS, _MAX_SLOT_BITS = 16, 27
_BIT_IN_BYTE, _BYTE_SHIFT = np.uint64(7), np.uint64(3)
_BIT_MASKS = np.array([1 << bit for bit in range(8)], np.uint8)


class NgramFilter:
    """A Bloom filter of n-gram hashes (of `data_prep.text.shingles.polynomials`)."""

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


RULE = "contaminated"


class ContaminationIndex:
    """Finds the documents that contain an evaluation text."""

    def __init__(self, names: list[str], beginnings: NgramFilter, tables: list[NgramTable]) -> None:
        self.names, self._beginnings, self._tables = names, beginnings, tables

    def hits(self, words: Words) -> Iterator[TextHit]:
        """Yield every text that a document contains; `names[hit.text]` is its name."""
        starts = self._beginnings.starts(words)
        for table in self._tables:
            yield from table.hits(words, starts)

    def num_counted(self, text: int) -> int:
        """Return the number of a text's different n-grams that are counted in the shares of its hits."""
        return sum(table.num_counted(text) for table in self._tables)

    def match(self, words: Words) -> list[Rejection | None]:
        """Return for each document None or a rejection by rule `contaminated`.

        Its value is the share of the text's counted n-grams that the document has, its detail "set/item". Of several
        texts it is the one with the largest share, then the first.
        """
        best: dict[int, TextHit] = {}
        for hit in self.hits(words):
            known = best.get(hit.document)
            if known is None or (-hit.share, hit.text) < (-known.share, known.text):
                best[hit.document] = hit
        rejections: list[Rejection | None] = [None] * (len(words.offsets) - 1)
        for document, hit in best.items():
            rejections[document] = Rejection(RULE, hit.share, self.names[hit.text])
        return rejections


def set_digest(name: str, config: DecontaminationConfig) -> str:
    """Return a digest of the texts of the set `name` that are looked for. UserError as for `build_index`."""
    only = config.model_copy(update={"sets": {name: config.sets[name]}})
    names, texts = _usable_texts(only, MATCH_RULE)
    return fingerprint([names, sha256_bytes(b"".join(words.tobytes() for words in texts))])


def build_index(config: DecontaminationConfig, rule: MatchRule = MATCH_RULE) -> bytes:
    """Return the index as a file's content: the same bytes for the same sets and rule.

    UserError as for `evaluation_texts`, and for a set whose texts are all too short to be matched.
    """
    names, texts = _usable_texts(config, rule)
    return index_of(names, texts, rule)


def index_of(names: list[str], texts: Sequence[NDArray[np.uint64]], rule: MatchRule) -> bytes:
    """Return the index, as `build_index`, of texts given as word hashes, each of at least `min_text_words` words."""
    beginning_words = min(rule.min_text_words, rule.ngram_words)
    beginnings = [np.empty(0, np.uint64), *(polynomials(words, beginning_words) for words in texts)]
    arrays: dict[str, Any] = {
        "names": np.frombuffer(json.dumps(names).encode(), np.uint8),
        "beginning_words": np.array(beginning_words),
        "beginnings": np.unique(np.concatenate(beginnings)),
    }
    long_texts = [words if len(words) >= rule.ngram_words else words[:0] for words in texts]
    arrays |= _table_arrays(long_texts, rule.ngram_words, rule)
    if beginning_words < rule.ngram_words:
        short_texts = [words if len(words) < rule.ngram_words else words[:0] for words in texts]
        all_words = replace(rule, min_share=1.0)
        arrays |= _table_arrays(short_texts, beginning_words, all_words)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


@lru_cache(maxsize=2)
def load_index(path: Path) -> ContaminationIndex:
    """Load an index of `build_index`; one copy per process."""
    with np.load(path) as arrays:
        lengths = sorted({int(name.partition("/")[0]) for name in arrays.files if "/" in name})
        tables = [
            NgramTable(
                length, arrays[f"{length}/hashes"], arrays[f"{length}/owners"], arrays[f"{length}/needed"]
            )
            for length in lengths
        ]
        beginnings = NgramFilter(int(arrays["beginning_words"]), arrays["beginnings"])
        return ContaminationIndex(json.loads(arrays["names"].tobytes()), beginnings, tables)


def _usable_texts(
    config: DecontaminationConfig, rule: MatchRule
) -> tuple[list[str], list[NDArray[np.uint64]]]:
    """Return names and word hashes of the texts that are long enough, each text once."""
    names: list[str] = []
    texts: list[NDArray[np.uint64]] = []
    known: set[bytes] = set()
    for set_name, set_config in config.sets.items():
        num_usable = 0
        for item in evaluation_texts(set_name, set_config):
            words = hash_words([item.text]).hashes
            if len(words) < rule.min_text_words:
                continue
            num_usable += 1
            if words.tobytes() not in known:
                known.add(words.tobytes())
                names.append(item.name)
                texts.append(words)
        if not num_usable:
            raise UserError(
                f"evaluation set {set_name}: no text has {rule.min_text_words} words, so none of it would be kept "
                "out: name other fields"
            )
    return names, texts


def _table_arrays(
    texts: Sequence[NDArray[np.uint64]], ngram_words: int, rule: MatchRule
) -> dict[str, NDArray[np.generic]]:
    hashes, owners = ngram_entries(texts, ngram_words, rule.max_sharing_texts)
    num_counted = np.bincount(owners, minlength=len(texts))
    # 0.07 * 100 is a little more than 7 in floating point and must not be rounded up to 8.
    share = np.ceil(rule.min_share * num_counted - 1e-9).astype(np.int64)
    needed = np.clip(share, 1, rule.enough_ngrams)
    return {f"{ngram_words}/hashes": hashes, f"{ngram_words}/owners": owners, f"{ngram_words}/needed": needed}
