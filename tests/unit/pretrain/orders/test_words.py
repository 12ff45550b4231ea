"""Words: identifiers are one, all else stands alone."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from data_prep.tokenizer import CodeTokenizer
from pretrain.orders.words import WordPieces
from tests.example_corpus import stdlib_packages, write_corpus

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> CodeTokenizer:
    splits = {split: stdlib_packages(["string", "heapq"]) for split in ("train", "validation", "test")}
    return write_corpus(tmp_path_factory.mktemp("prep"), splits).tokenizer


def begins(tokenizer: CodeTokenizer, ids: np.ndarray) -> np.ndarray:
    pieces = WordPieces.of_tokenizer(tokenizer, CPU)
    return pieces.begins_word(torch.from_numpy(ids.astype(np.int64))[None])[0].numpy()


def test_a_token_continues_a_word_exactly_where_a_word_continues_in_the_text(
    tokenizer: CodeTokenizer,
) -> None:
    text = (
        Path(re.__file__).read_text(encoding="utf-8")[:20_000] + "größe_von_x1 = 'été'  # naïve, 日本語 a—b\n"
    )
    ids, offsets = tokenizer.encode_with_offsets(text)
    data = text.encode()
    inside = {
        position
        for run in re.finditer(rb"[A-Za-z0-9_\x80-\xff]+", data)
        for position in range(run.start() + 1, run.end())
    }
    found = begins(tokenizer, ids)
    assert [not start for start in found] == [int(offset) in inside for offset in offsets]
    assert 0.2 < found.mean() < 0.8, "the text must have words of one and of several tokens"


def test_an_identifier_of_many_tokens_is_one_word(tokenizer: CodeTokenizer) -> None:
    ids = tokenizer.encode("zqxj_wvkp42größe")
    assert len(ids) > 3
    assert begins(tokenizer, ids).tolist() == [True] + [False] * (len(ids) - 1)


def test_special_tokens_and_the_first_token_are_words_of_their_own(tokenizer: CodeTokenizer) -> None:
    word = tokenizer.encode("zq")
    ids = np.concatenate([word[-1:], [tokenizer.eod_id, tokenizer.eod_id], word])
    assert begins(tokenizer, ids)[:4].tolist() == [True, True, True, True]
