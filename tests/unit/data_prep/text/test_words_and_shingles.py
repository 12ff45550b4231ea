"""The vectorized code agrees with plain Python that processes one word at a time."""

import re

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.text.shingles import MULTIPLIER, NGRAM_BASE, hash_words, polynomials, shingles

_MASK = (1 << 64) - 1
_WORD = re.compile(rb"[A-Za-z0-9_\x80-\xff]{1,64}")

_PIECES = st.one_of(
    st.binary(max_size=12),
    st.text(alphabet="ab_Z9 .\n\0é", max_size=30).map(str.encode),
    st.integers(1, 200).map(lambda size: b"x" * size),
)
_TEXTS = st.lists(_PIECES, max_size=8).map(b" ".join)


def plain_word_hash(word: bytes) -> int:
    value = 0
    for start in range(0, len(word), 8):
        value ^= value >> 29
        value = (value + int.from_bytes(word[start : start + 8], "little")) * int(MULTIPLIER) & _MASK
    return value ^ value >> 32


def plain_mix(value: int) -> int:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        value = (value ^ value >> 33) * factor & _MASK
    return value ^ value >> 33


def plain_shingles(text: bytes, ngram_words: int) -> list[int]:
    hashes = [plain_word_hash(word) for word in _WORD.findall(text)]
    result = []
    for start in range(len(hashes) - ngram_words + 1):
        value = 0
        for word in hashes[start : start + ngram_words]:
            value = (value * NGRAM_BASE + word) & _MASK
        result.append(plain_mix(value))
    return result


@settings(max_examples=100, deadline=None)
@given(st.lists(_TEXTS, max_size=6))
def test_words_are_those_of_a_regular_expression(texts: list[bytes]) -> None:
    words = hash_words(texts)
    for number, text in enumerate(texts):
        ours = words.hashes[words.offsets[number] : words.offsets[number + 1]].tolist()
        assert ours == [plain_word_hash(word) for word in _WORD.findall(text)]


@settings(max_examples=100, deadline=None)
@given(st.lists(_TEXTS, max_size=6), st.integers(1, 13))
def test_shingles_never_cross_documents_and_equal_the_plain_ones(
    texts: list[bytes], ngram_words: int
) -> None:
    ngrams = shingles(hash_words(texts), ngram_words)
    for number, text in enumerate(texts):
        begin, end = ngrams.offsets[number], ngrams.offsets[number + 1]
        assert ngrams.hashes[begin:end].tolist() == plain_shingles(text, ngram_words)
        assert set(ngrams.documents[begin:end].tolist()) <= {number}


def test_runs_of_65_bytes_are_two_words_and_of_64_one() -> None:
    assert len(hash_words([b"a" * 64]).hashes) == 1
    assert len(hash_words([b"a" * 65]).hashes) == 2
    assert hash_words([b"a" * 65]).hashes[1] == hash_words([b"a"]).hashes[0]


def test_words_of_a_large_file_do_not_collide() -> None:
    names = [
        b"%s%d" % (prefix, number) for prefix in (b"", b"a", b"value_", b"x" * 9) for number in range(50_000)
    ]
    assert len(np.unique(hash_words([b" ".join(names)]).hashes)) == len(names)


def test_texts_without_words_and_no_texts_are_fine() -> None:
    assert hash_words([]).offsets.tolist() == [0]
    words = hash_words([b"", b"+-*/ []\n", b"\0\0"])
    assert words.offsets.tolist() == [0, 0, 0, 0]
    assert len(shingles(words, 5).hashes) == 0
    assert len(polynomials(words.hashes, 5)) == 0


def test_case_counts_and_spacing_does_not() -> None:
    def hashes(text: bytes) -> list[int]:
        return hash_words([text]).hashes.tolist()

    assert hashes(b"a = b(c)") == hashes(b"a=b ( c )\n")
    assert hashes(b"Name") != hashes(b"name")
