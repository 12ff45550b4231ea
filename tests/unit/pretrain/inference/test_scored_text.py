"""Scores of files: which bytes they are of, and bits per byte."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from cluster.errors import UserError
from data_prep.steps.tokenizer_training import train_tokenizer
from data_prep.tokenizer import CodeTokenizer
from data_prep.tokenizers.config import TokenizerConfig
from pretrain.inference.scored_text import ScoredText, score_parts, score_texts
from pretrain.inference.scoring import score_chosen
from pretrain.inference.text_ranges import ByteRange
from pretrain.model.transformer import TwoStreamTransformer
from tests.example_corpus import tiny_model

SEGMENT = 64
TEXT = b"def add(first, second):\n    return first + second  # \xc3\xa4 \xff\n"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> CodeTokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_bytes(train_tokenizer([TEXT] * 3, TokenizerConfig(vocab_size=340)))
    return CodeTokenizer.load(path)


@pytest.fixture(scope="module")
def model(tokenizer: CodeTokenizer) -> TwoStreamTransformer:
    return tiny_model(tokenizer.vocab_size).eval()


def spelled(tokenizer: CodeTokenizer, scored: ScoredText) -> list[bytes]:
    return [tokenizer.decode_bytes([token]) for token in scored.token_P]


def test_the_tokens_of_a_text_spell_it_and_all_are_scored(
    model: TwoStreamTransformer, tokenizer: CodeTokenizer
) -> None:
    texts = [TEXT * 5, TEXT, b"x"]
    for text, scored in zip(texts, score_texts(model, tokenizer, texts, SEGMENT), strict=True):
        assert b"".join(spelled(tokenizer, scored)) == text
        assert scored.num_bytes == len(text)
        assert (scored.scores.log_probability_P < 0).all()
        assert scored.bits_per_byte == pytest.approx(
            -scored.scores.log_probability_P.sum() / np.log(2) / len(text)
        )


def test_a_part_is_the_tokens_that_reach_into_it_given_all_others(
    model: TwoStreamTransformer, tokenizer: CodeTokenizer
) -> None:
    part = ByteRange(TEXT.index(b"first"), TEXT.index(b"second") + 1)
    scored = score_parts(model, tokenizer, TEXT, [part], SEGMENT)
    for token, start in zip(spelled(tokenizer, scored), scored.start_byte_P, strict=True):
        assert TEXT[start : start + len(token)] == token
        assert start < part.end
        assert start + len(token) > part.start
    assert scored.start_byte_P[0] <= part.start
    tokens = tokenizer.encode_bytes(TEXT)
    expected = score_chosen(model, tokens, scored.scores.index_P, tokenizer.eod_id, SEGMENT)
    assert_allclose(scored.scores.log_probability_P, expected.log_probability_P)
    assert scored.scores.sees_all


@given(st.lists(st.tuples(st.integers(0, len(TEXT) - 1), st.integers(1, 20)), min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_parts_are_scored_together_and_each_token_is_one_parts(
    model: TwoStreamTransformer, tokenizer: CodeTokenizer, wanted: list[tuple[int, int]]
) -> None:
    parts = [ByteRange(start, min(len(TEXT), start + length)) for start, length in wanted]
    scored = score_parts(model, tokenizer, TEXT, parts, SEGMENT)
    tokens = tokenizer.encode_bytes(TEXT)
    place_of_byte = np.repeat(np.arange(len(tokens)), tokenizer.token_bytes[tokens])
    order = np.unique(np.concatenate([place_of_byte[part.start : part.end] for part in parts]))
    assert scored.scores.index_P.tolist() == order.tolist()
    expected = score_chosen(model, tokens, order, tokenizer.eod_id, SEGMENT)
    assert_allclose(scored.scores.log_probability_P, expected.log_probability_P)
    left = set(order.tolist())
    for part, share in zip(parts, scored.shares(parts), strict=True):
        own = left & set(place_of_byte[part.start : part.end].tolist())
        assert set(share.scores.index_P.tolist()) == own
        assert share.num_bytes == tokenizer.token_bytes[tokens][sorted(own)].sum()
        left -= own
    assert not left
    for other in ([*parts, parts[0]], parts[::-1]):
        again = score_parts(model, tokenizer, TEXT, other, SEGMENT)
        assert again.scores.log_probability_P.tolist() == scored.scores.log_probability_P.tolist()


def test_what_follows_a_part_moves_its_scores(model: TwoStreamTransformer, tokenizer: CodeTokenizer) -> None:
    other = TEXT.replace(b"return", b"lambda")
    part = ByteRange(0, 3)
    first, second = (score_parts(model, tokenizer, text, [part], SEGMENT) for text in (TEXT, other))
    assert first.token_P.tolist() == second.token_P.tolist()
    assert first.scores.log_likelihood != pytest.approx(second.scores.log_likelihood, abs=1e-6)


def test_an_even_model_needs_the_same_bits_for_every_token(tokenizer: CodeTokenizer) -> None:
    model = tiny_model(tokenizer.vocab_size).eval()
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    (scored,) = score_texts(model, tokenizer, [TEXT], SEGMENT)
    assert scored.scores.perplexity == pytest.approx(tokenizer.vocab_size, rel=1e-6)
    bits = len(scored.token_P) * np.log2(tokenizer.vocab_size)
    assert scored.bits_per_byte == pytest.approx(bits / len(TEXT), rel=1e-6)


def test_nothing_to_score_is_refused(model: TwoStreamTransformer, tokenizer: CodeTokenizer) -> None:
    with pytest.raises(UserError, match="the text is empty"):
        score_texts(model, tokenizer, [TEXT, b""], SEGMENT)
    with pytest.raises(UserError, match="the text is empty"):
        score_parts(model, tokenizer, b"", [ByteRange(0, 1)], SEGMENT)
    with pytest.raises(UserError, match="bytes 5:99 are not in the text"):
        score_parts(model, tokenizer, TEXT, [ByteRange(0, 1), ByteRange(5, 99)], SEGMENT)
    with pytest.raises(UserError, match="no part is given"):
        score_parts(model, tokenizer, TEXT, [], SEGMENT)
