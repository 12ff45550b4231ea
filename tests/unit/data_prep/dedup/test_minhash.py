"""Band keys depend on the n-gram set only, and agree as often as the theory says."""

import hashlib

import numpy as np
import pytest
from numpy.typing import NDArray

from data_prep.dedup import signatures as minhash
from data_prep.dedup.config import NUM_BANDS, ROWS_PER_BAND, NearDuplicatesConfig
from data_prep.dedup.signatures import band_keys, signatures
from data_prep.text.shingles import Shingles, hash_words, shingles

CONFIG = NearDuplicatesConfig()
RNG_SEED = 20


def shingles_of(sets: list[NDArray[np.uint64]]) -> Shingles:
    offsets = np.cumsum([0, *map(len, sets)])
    return Shingles(np.concatenate(sets), offsets, np.repeat(np.arange(len(sets)), np.diff(offsets)))


def random_pairs(similarity: float, size: int, num_pairs: int) -> list[NDArray[np.uint64]]:
    """Return sets of which 2i and 2i + 1 have the Jaccard similarity."""
    rng = np.random.default_rng(RNG_SEED)
    num_common = round(2 * size * similarity / (1 + similarity))
    num_own = size - num_common
    sets = []
    for _ in range(num_pairs):
        drawn = rng.integers(0, 2**64, num_common + 2 * num_own, dtype=np.uint64)
        sets += [drawn[: num_common + num_own], np.delete(drawn, slice(num_common, num_common + num_own))]
    return sets


@pytest.mark.parametrize("size", [30, 200, 3000])
@pytest.mark.parametrize("similarity", [0.5, 0.7, 0.8])
def test_pairs_share_a_band_as_often_as_theory_says(similarity: float, size: int) -> None:
    num_pairs = 1500 if size < 3000 else 500
    sets = random_pairs(similarity, size, num_pairs)
    keys = band_keys(shingles_of(sets))
    share = np.any(keys[0::2] == keys[1::2], axis=1).mean()
    real = len(np.intersect1d(sets[0], sets[1])) / len(np.union1d(sets[0], sets[1]))
    expected = 1 - (1 - real**ROWS_PER_BAND) ** NUM_BANDS
    # Borrowed values of small sets repeat each other: bands are then not quite independent.
    tolerance = 0.06 if size < 1000 else 0.04
    assert abs(share - expected) < tolerance + 3 * (expected * (1 - expected) / num_pairs) ** 0.5


def test_minhash_values_agree_as_often_as_the_sets_are_similar() -> None:
    sets = random_pairs(0.6, 400, 300)
    values = minhash._fill_empty_bins(minhash._bin_minima(shingles_of(sets), 252))
    assert abs((values[0::2] == values[1::2]).mean() - 0.6) < 0.01


def test_disjoint_sets_share_no_key() -> None:
    keys = band_keys(shingles_of(random_pairs(0.0, 300, 200)))
    assert not np.any(keys[0::2] == keys[1::2])


@pytest.mark.parametrize("size", [1, 2, 7, 60])
def test_borrowing_probe_by_probe_equals_borrowing_by_rank(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    minima = minhash._bin_minima(shingles_of(random_pairs(0.5, size, 10)), 252)
    by_probe_then_rank = minhash._fill_empty_bins(minima)
    assert not np.any(by_probe_then_rank == minhash._EMPTY)
    monkeypatch.setattr(minhash, "NUM_PROBES", 252)
    assert np.array_equal(minhash._fill_empty_bins(minima), by_probe_then_rank)
    monkeypatch.setattr(minhash, "NUM_PROBES", 0)
    assert np.array_equal(minhash._fill_empty_bins(minima), by_probe_then_rank)


def test_keys_depend_neither_on_neighbours_in_the_batch_nor_on_order_or_repeats_of_ngrams() -> None:
    texts = [
        b" ".join(b"w%d" % (i * step) for i in range(count)) for step, count in ((1, 9), (3, 700), (7, 40))
    ]
    together = band_keys(shingles(hash_words(texts), 5))
    for number, text in enumerate(texts):
        alone = shingles(hash_words([text]), 5)
        assert np.array_equal(band_keys(alone)[0], together[number])
        twice = Shingles(np.tile(alone.hashes[::-1], 2), alone.offsets * 2, np.tile(alone.documents, 2))
        assert np.array_equal(band_keys(twice)[0], together[number])


def test_documents_below_five_words_have_no_bands() -> None:
    none, some = signatures([b"a b c d", b"a b c d e"], CONFIG, None)
    assert none.bands is None
    assert some.bands is not None
    assert len(some.bands) == 8 * NUM_BANDS


def test_signatures_have_fixed_bytes() -> None:
    # Keys lie in prep folders: another value here means raising the format's version.
    text = b"def add(first, second):\n    return first + second  # both are numbers\n"
    made = signatures([text, text * 50], CONFIG, None)
    digest = hashlib.sha256(b"".join(one.bands or b"" for one in made)).hexdigest()
    assert digest[:16] == "ab4b7e0063725343"
