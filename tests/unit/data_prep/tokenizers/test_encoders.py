"""The fast encoder is used only if it agrees with the plain one."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from tokenizers import Tokenizer

from data_prep.tokenizers import bpe as bpe_encoders
from data_prep.tokenizers.bpe import FastEncoder, PlainEncoder, train_bpe
from data_prep.tokenizers.config import TokenizerConfig
from data_prep.tokenizers.encoding import EncodedBatch, Encoder
from data_prep.tokenizers.opened import token_lengths
from data_prep.tokenizers.opening import open_tokenizer
from data_prep.tokenizers.verification import VerifiedEncoder, battery, first_difference
from tests.unit.data_prep.tokenizers.test_tokenizer import TEXTS


@pytest.fixture(scope="module")
def content(code: list[bytes]) -> str:
    config = TokenizerConfig(vocab_size=1200, digits="up_to_three")
    return train_bpe((text.decode() for text in code), config).decode()


@pytest.fixture(scope="module")
def plain(content: str) -> PlainEncoder:
    return PlainEncoder(Tokenizer.from_str(content))


@pytest.fixture(scope="module")
def lengths(content: str) -> np.ndarray:
    return token_lengths(open_tokenizer(content.encode(), "lengths").vocabulary)


@settings(deadline=None, max_examples=100)
@given(text=TEXTS)
def test_fast_and_plain_agree_on_any_text(plain: PlainEncoder, content: str, text: str) -> None:
    fast = _FAST.setdefault(content, FastEncoder(content))
    assert first_difference(fast, plain, [text.encode()]) is None


_FAST: dict[str, FastEncoder] = {}


def test_fast_and_plain_agree_on_code(plain: PlainEncoder, content: str, code: list[bytes]) -> None:
    assert first_difference(FastEncoder(content), plain, code) is None


class Wrong:
    """An encoder that alters the result of another."""

    name = "wrong"

    def __init__(self, encoder: Encoder, text: bytes, ids: Sequence[int]) -> None:
        self._encoder = encoder
        self._text = text
        self._ids = np.array(ids, np.uint32)

    def encode(self, texts: Sequence[bytes]) -> EncodedBatch:
        if self._text in texts and len(texts) == 1:
            return EncodedBatch(self._ids, np.array([0, len(self._ids)]))
        return self._encoder.encode(texts)


class WrongOnBattery(Wrong):
    def encode(self, texts: Sequence[bytes]) -> EncodedBatch:
        batch = self._encoder.encode(texts)
        ids = batch.ids.copy()
        ids[len(ids) // 2] ^= 1
        return EncodedBatch(ids, batch.ends)


def test_the_fast_encoder_is_chosen_if_it_agrees(
    plain: PlainEncoder, content: str, lengths: np.ndarray
) -> None:
    chosen = VerifiedEncoder(plain, lambda: FastEncoder(content), lengths)
    assert (chosen.name, chosen.fallback_reason) == ("gigatoken", None)


def test_an_encoder_that_differs_on_one_token_is_not_used(plain: PlainEncoder, lengths: np.ndarray) -> None:
    chosen = VerifiedEncoder(plain, lambda: WrongOnBattery(plain, b"", []), lengths)
    assert chosen.name == "tokenizers"
    assert chosen.fallback_reason is not None
    assert "differs on b" in chosen.fallback_reason
    assert "\n" not in chosen.fallback_reason


@pytest.mark.parametrize("error", [RuntimeError("no such scheme\nat line 3"), BaseException("panic")])
def test_an_encoder_that_cannot_be_made_is_not_used(
    plain: PlainEncoder, lengths: np.ndarray, error: BaseException
) -> None:
    def make() -> Encoder:
        raise error

    chosen = VerifiedEncoder(plain, make, lengths)
    assert chosen.name == "tokenizers"
    assert chosen.fallback_reason == f"the fast encoder failed: {str(error).splitlines()[0]}"


def test_an_encoder_that_loses_bytes_later_is_replaced(plain: PlainEncoder, lengths: np.ndarray) -> None:
    text = b"def later(): pass"
    chosen = VerifiedEncoder(plain, lambda: Wrong(plain, text, [100]), lengths)
    assert chosen.name == "wrong"
    assert np.array_equal(chosen.encode([text]).ids, plain.encode([text]).ids)
    assert (chosen.name, chosen.fallback_reason) == ("tokenizers", "the fast encoder lost bytes of a text")


def test_resetting_the_cache_changes_nothing(
    plain: PlainEncoder, content: str, code: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bpe_encoders, "RESET_AFTER_BYTES", 1)
    fast = FastEncoder(content)
    before = fast._encoder
    for text in code[:3]:
        assert first_difference(fast, plain, [text]) is None
    assert fast._encoder is not before


def test_the_battery_has_hundreds_of_texts_in_little_space() -> None:
    texts = battery()
    assert len(set(texts)) > 900
    assert sum(map(len, texts)) < 300_000
    joined = b"".join(texts).decode()
    for needle in ("<eod>", "<reserved_63>", "\0", "\u2581", " " * 400, "'s", "漢", "\r\n", "\u0301"):
        assert needle in joined


def test_a_file_is_opened_once_per_process(content: str, tmp_path: Path) -> None:
    assert open_tokenizer(content.encode(), "once") is open_tokenizer(content.encode(), "once")
