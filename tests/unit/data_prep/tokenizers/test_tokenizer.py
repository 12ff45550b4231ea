"""The tokenizer gives back every text, and its pieces are those of code."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import UserError
from cluster.storage import sha256_file
from data_prep.documents import SPECIAL_TOKENS
from data_prep.tokenizer import CodeTokenizer, token_dtype
from data_prep.tokenizer_training import train_tokenizer

CODE = [
    f"def read_{name}(self, count):\n    for i in range(10):\n"
    f"        if count == {i}:\n            return self.{name}(i)\n"
    for i, name in enumerate(["alpha", "beta", "gamma", "delta"] * 10)
]
SNIPPETS = st.sampled_from(
    [*SPECIAL_TOKENS, "\r\n", "\t\t", "\n        ", "é", "\u0301", "𝔘", "👩‍👩‍👧", "\0", "\u2028", "\ufeff"]
)
TEXTS = st.lists(st.one_of(st.text(st.characters(exclude_categories=["Cs"])), SNIPPETS)).map("".join)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> CodeTokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(train_tokenizer(CODE, 400).to_str())
    return CodeTokenizer.load(path, sha256_file(path))


@settings(deadline=None)
@given(TEXTS)
def test_every_text_comes_back_exactly(tokenizer: CodeTokenizer, text: str) -> None:
    ids, starts = tokenizer.encode_with_offsets(text)
    assert tokenizer.decode(ids) == text
    assert int(tokenizer.token_bytes[ids].sum()) == len(text.encode())
    assert np.array_equal(ids, tokenizer.encode(text))
    for position in (0, len(ids) // 2, len(ids) - 1):
        if 0 <= position < len(ids):
            prefix = text.encode()[: starts[position]].decode(errors="replace")
            assert tokenizer.decode(ids[:position]) == prefix


@settings(deadline=None)
@given(TEXTS)
def test_text_never_becomes_a_special_token(tokenizer: CodeTokenizer, text: str) -> None:
    assert not (tokenizer.encode(text) < len(SPECIAL_TOKENS)).any()


def pieces(tokenizer: CodeTokenizer, text: str) -> list[str]:
    return [tokenizer.decode([i]) for i in tokenizer.encode(text)]


def test_pieces_of_code(tokenizer: CodeTokenizer) -> None:
    assert "\n        " in pieces(tokenizer, "if x:\n        return")
    assert pieces(tokenizer, "2024")[-4:] == ["2", "0", "2", "4"]
    joined = pieces(tokenizer, "return self.alpha(count)")
    assert all(piece.strip().isidentifier() or not any(c.isalpha() for c in piece) for piece in joined)
    assert " self" in joined


def test_specials_come_first_and_are_left_out_of_text(tokenizer: CodeTokenizer) -> None:
    assert [tokenizer.special_id(token) for token in SPECIAL_TOKENS] == list(range(9))
    assert (tokenizer.pad_id, tokenizer.eod_id) == (0, 1)
    assert tokenizer.decode([tokenizer.eod_id, *tokenizer.encode("x"), tokenizer.pad_id]) == "x"
    assert not tokenizer.token_bytes[: len(SPECIAL_TOKENS)].any()
    assert (tokenizer.token_bytes[len(SPECIAL_TOKENS) :] > 0).all()


def test_training_twice_gives_the_same_file() -> None:
    assert train_tokenizer(CODE, 380).to_str() == train_tokenizer(iter(CODE), 380).to_str()


def test_type_of_ids_follows_the_vocabulary(tokenizer: CodeTokenizer) -> None:
    assert tokenizer.encode("x").dtype == np.uint16
    assert (token_dtype(65_536), token_dtype(65_537)) == (np.uint16, np.uint32)


def test_a_flipped_bit_is_found(tokenizer: CodeTokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(train_tokenizer(CODE, 300).to_str())
    digest = sha256_file(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"tokenizer\.json is damaged"):
        CodeTokenizer.load(path, digest)


def test_missing_broken_or_foreign_file(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(UserError, match="is missing"):
        CodeTokenizer.load(path)
    path.write_text("{}")
    with pytest.raises(UserError, match="cannot be parsed"):
        CodeTokenizer.load(path)
    foreign = train_tokenizer(CODE, 300).to_str().replace('"<eod>"', '"<end>"')
    path.write_text(foreign)
    with pytest.raises(UserError, match="other special tokens"):
        CodeTokenizer.load(path)
