"""Tokenizers of any kind encode and decode any bytes exactly."""

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import UserError
from cluster.storage import sha256_file
from data_prep.documents import SPECIAL_TOKENS
from data_prep.steps.tokenizer_training import train_tokenizer
from data_prep.tokenizer import CodeTokenizer, token_dtype
from data_prep.tokenizers.config import TokenizerConfig

NUM_SPECIAL = len(SPECIAL_TOKENS)
SNIPPETS = st.sampled_from(
    [
        *SPECIAL_TOKENS[:12],
        "\r\n",
        "\r",
        "\t\t\t\t\t",
        "\n        ",
        " " * 99,
        "é",
        "\u0301",
        "𝔘",
        "👩‍👩‍👧",
        "\0",
    ]
    + [
        "\u2028",
        "\ufeff",
        "\u2581",
        "\u2581 \u2581",
        "\ufffd",
        "1234567",
        "def f(self):",
        "漢字",
        "\x1f",
        "don't",
    ]
)
TEXTS = st.lists(st.one_of(st.text(st.characters(exclude_categories=["Cs"])), SNIPPETS)).map("".join)
BYTES = st.lists(
    st.one_of(
        st.binary(max_size=8),
        TEXTS.map(str.encode),
        st.sampled_from([b"\xff", b"\xe2\x96", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"]),
    )
).map(b"".join)


@settings(deadline=None, max_examples=100)
@given(data=BYTES)
def test_any_bytes_are_decoded_exactly(tokenizer: CodeTokenizer, data: bytes) -> None:
    ids = tokenizer.encode_bytes(data)
    assert tokenizer.decode_bytes(ids) == data
    assert int(tokenizer.token_bytes[ids].sum()) == len(data)


@settings(deadline=None, max_examples=60)
@given(text=TEXTS)
def test_offsets_are_where_the_bytes_of_a_token_begin(tokenizer: CodeTokenizer, text: str) -> None:
    ids, starts = tokenizer.encode_with_offsets(text)
    assert tokenizer.decode(ids) == text
    assert np.array_equal(ids, tokenizer.encode_bytes(text.encode()))
    for position in range(0, len(ids), 1 + len(ids) // 3):
        assert tokenizer.decode_bytes(ids[:position]) == text.encode()[: starts[position]]


@settings(deadline=None, max_examples=60)
@given(data=BYTES)
def test_bytes_never_become_a_special_token(tokenizer: CodeTokenizer, data: bytes) -> None:
    assert not (tokenizer.encode_bytes(data) < NUM_SPECIAL).any()


def test_the_spelling_of_every_special_token_is_ordinary_text(tokenizer: CodeTokenizer) -> None:
    for token in SPECIAL_TOKENS:
        ids = tokenizer.encode(f"{token} {token}{token}")
        assert (ids >= NUM_SPECIAL).all()
        assert tokenizer.decode(ids) == f"{token} {token}{token}"


@settings(deadline=None, max_examples=40)
@given(documents=st.lists(BYTES, max_size=6))
def test_a_batch_gives_the_same_as_one_by_one(tokenizer: CodeTokenizer, documents: list[bytes]) -> None:
    batch = tokenizer.encode_bytes_batch(documents)
    assert len(batch) == len(documents)
    for ids, data in zip(batch, documents, strict=True):
        assert ids.dtype == tokenizer.dtype
        assert np.array_equal(ids, tokenizer.encode_bytes(data))


@pytest.mark.parametrize("unit", [b"a", b" ", b"\n", b"(", b"x = 1; ", "\u2581".encode(), b"\xff"])
def test_a_file_of_one_line_takes_time_in_proportion(tokenizer: CodeTokenizer, unit: bytes) -> None:
    data = unit * (1_000_000 // len(unit))
    start_s = time.process_time()
    ids = tokenizer.encode_bytes(data)
    # Anything quadratic would take minutes.
    assert time.process_time() - start_s < 10
    assert tokenizer.decode_bytes(ids) == data


def test_specials_come_first_and_are_left_out_of_text(tokenizer: CodeTokenizer) -> None:
    assert [tokenizer.special_id(token) for token in SPECIAL_TOKENS] == list(range(NUM_SPECIAL))
    assert (tokenizer.pad_id, tokenizer.eod_id) == (0, 1)
    assert tokenizer.decode([tokenizer.eod_id, *tokenizer.encode("x"), tokenizer.pad_id]) == "x"
    assert not tokenizer.token_bytes[:NUM_SPECIAL].any()
    assert (tokenizer.token_bytes[NUM_SPECIAL:] > 0).all()
    assert len(tokenizer.token_bytes) == tokenizer.vocab_size == 1024


def test_broken_utf8_decodes_to_replacement_characters(tokenizer: CodeTokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode_bytes(b"a\xffb")) == "a\ufffdb"


def test_type_of_ids_follows_the_vocabulary(tokenizer: CodeTokenizer) -> None:
    assert tokenizer.encode("x").dtype == np.uint16
    assert (token_dtype(65_536), token_dtype(65_537)) == (np.uint16, np.uint32)


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece_bpe"])
def test_a_flipped_bit_is_found(kind: str, code: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(train_tokenizer(code, TokenizerConfig(kind=kind, vocab_size=500)))  # type: ignore[arg-type]
    digest = sha256_file(path)
    assert CodeTokenizer.load(path, digest).fingerprint == digest
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"tokenizer\.json is damaged"):
        CodeTokenizer.load(path, digest)


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"permcode_tokenizer": "sentencepiece_bpe", "model": "AAAA"}', "\0"]
)
def test_a_file_that_is_no_tokenizer_is_an_error(content: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(UserError, match="is missing"):
        CodeTokenizer.load(path)
    path.write_text(content)
    with pytest.raises(UserError, match="cannot be parsed"):
        CodeTokenizer.load(path)


def test_a_tokenizer_with_other_special_tokens_is_an_error(code: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    content = train_tokenizer(code, TokenizerConfig(vocab_size=500))
    path.write_bytes(content.replace(b'"<eod>"', b'"<end>"'))
    with pytest.raises(UserError, match="its special tokens differ"):
        CodeTokenizer.load(path)


def test_the_exported_model_can_be_read_by_its_library(tokenizer: CodeTokenizer, tmp_path: Path) -> None:
    path = tokenizer.export(tmp_path / "exported")
    text = "def f(self):\n    return [1, 2]\n"
    if tokenizer.kind == "bpe":
        from tokenizers import Tokenizer

        ids = Tokenizer.from_file(str(path)).encode(text, add_special_tokens=False).ids
    else:
        from sentencepiece import SentencePieceProcessor

        assert path.suffix == ".model"
        ids = SentencePieceProcessor(model_file=str(path)).encode(text)
    assert ids == tokenizer.encode(text).tolist()
