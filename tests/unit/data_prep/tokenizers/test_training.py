"""Training observes the rules of its configuration and always gives the same file."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import ValidationError

from data_prep.documents import SPECIAL_TOKENS
from data_prep.steps.tokenizer_training import train_tokenizer
from data_prep.tokenizer import CodeTokenizer
from data_prep.tokenizers.config import MIN_VOCAB_SIZE, TokenizerConfig
from tests.unit.data_prep.tokenizers.conftest import KINDS

RULES = [
    TokenizerConfig(
        kind=kind, vocab_size=2000, digits=digits, punctuation=punctuation, max_whitespace_run=run
    )
    for kind in KINDS
    for digits, punctuation, run in (("single", "separate", 6), ("up_to_three", "joined", 32))
]
NUMBERS = b"port = 8080\nyear = 2024\nx = 31415926\n" * 50


def learned(content: bytes, folder: Path) -> list[str]:
    """Return the tokens that are valid UTF-8."""
    path = folder / "tokenizer.json"
    path.write_bytes(content)
    tokenizer = CodeTokenizer.load(path)
    ids = range(len(SPECIAL_TOKENS), tokenizer.vocab_size)
    return [text for text in (tokenizer.decode([i]) for i in ids) if "\ufffd" not in text]


@pytest.mark.parametrize("config", RULES, ids=lambda one: f"{one.kind}-{one.digits}")
def test_learned_tokens_observe_the_rules(config: TokenizerConfig, code: list[bytes], tmp_path: Path) -> None:
    tokens = learned(train_tokenizer([*code, NUMBERS], config), tmp_path)
    longest_number = max(len(run) for token in tokens for run in re.findall(r"\d+", token))
    assert longest_number == (1 if config.digits == "single" else 3)
    assert max(len(run) for token in tokens for run in re.findall(r"\s+", token)) <= config.max_whitespace_run
    assert max(len(token.encode()) for token in tokens) <= config.max_token_bytes
    glued = [token for token in tokens if re.search(r"[^\s\w][^\W\d_]", token)]
    assert bool(glued) == (config.punctuation == "joined")
    # An indented line begins with one token, up to the space that goes with the next word.
    assert max(len(token) for token in tokens if token.strip(" ") == "") >= 5
    assert not [token for token in tokens if re.search(r"[^\W_]\s", token)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_short_limit_on_token_bytes_applies_outside_ascii(kind: str, tmp_path: Path) -> None:
    texts = ["日本語の文字列 значение переменной = 12\n".encode() * 40]
    config = TokenizerConfig(kind=kind, vocab_size=600, max_token_bytes=8)  # type: ignore[arg-type]
    tokens = learned(train_tokenizer(texts, config), tmp_path)
    assert 4 < max(len(token.encode()) for token in tokens) <= 8


_TRAIN = """
import hashlib, sys
from data_prep.steps.tokenizer_training import train_tokenizer
from data_prep.tokenizers.config import TokenizerConfig
from tests.unit.data_prep.tokenizers.conftest import code_texts
for kind in ("bpe", "sentencepiece_unigram", "sentencepiece_bpe"):
    content = train_tokenizer(iter(code_texts()), TokenizerConfig(kind=kind, vocab_size=1500))
    print(hashlib.sha256(content).hexdigest())
"""


def test_the_file_is_the_same_whatever_the_process_and_its_threads() -> None:
    def digests(hash_seed: str, threads: str) -> Sequence[str]:
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "RAYON_NUM_THREADS": threads}
        environment |= {"TOKENIZERS_PARALLELISM": "true", "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", _TRAIN]
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True
        ).stdout.splitlines()

    first = digests("1", "1")
    assert len(set(first)) == 3
    assert digests("2", "5") == first


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("texts", [[b"x = 1\n"], [b"\xff\xfe\t\0"], ["日本語" * 3, "a\n"], []], ids=range(4))
def test_very_little_text_gives_a_small_working_tokenizer(
    kind: str, texts: list[bytes | str], tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    data = [text.encode() if isinstance(text, str) else text for text in texts]
    path.write_bytes(train_tokenizer(data, TokenizerConfig(kind=kind)))  # type: ignore[arg-type]
    tokenizer = CodeTokenizer.load(path)
    assert MIN_VOCAB_SIZE <= tokenizer.vocab_size < 400
    for text in (*data, b"def f():\n\treturn 0\n"):
        assert tokenizer.decode_bytes(tokenizer.encode_bytes(text)) == text


@pytest.mark.parametrize("kind", KINDS)
def test_the_smallest_vocabulary_can_be_trained(kind: str, code: list[bytes], tmp_path: Path) -> None:
    config = TokenizerConfig(kind=kind, vocab_size=MIN_VOCAB_SIZE + 64)  # type: ignore[arg-type]
    path = tmp_path / "tokenizer.json"
    path.write_bytes(train_tokenizer(code, config))
    tokenizer = CodeTokenizer.load(path)
    assert tokenizer.vocab_size == config.vocab_size
    assert tokenizer.decode_bytes(tokenizer.encode_bytes(code[0])) == code[0]


def test_too_small_a_vocabulary_is_refused() -> None:
    with pytest.raises(ValidationError):
        TokenizerConfig(vocab_size=MIN_VOCAB_SIZE - 1)
    with pytest.raises(ValidationError, match="at least"):
        TokenizerConfig(kind="sentencepiece_bpe", vocab_size=MIN_VOCAB_SIZE)
