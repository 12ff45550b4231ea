"""A small tokenizer of every kind."""

import tarfile
from pathlib import Path

import pytest

from data_prep.steps.tokenizer_training import train_tokenizer
from data_prep.tokenizer import CodeTokenizer
from data_prep.tokenizers.config import TokenizerConfig, TokenizerKind

KINDS: tuple[TokenizerKind, ...] = ("bpe", "sentencepiece_unigram", "sentencepiece_bpe")


def code_texts() -> list[bytes]:
    """Return some 400 KB of the standard library, and C with tabs."""
    folder = Path(tarfile.__file__).parent
    names = ("tarfile", "argparse", "inspect", "typing", "locale", "html/entities")
    texts = [(folder / f"{name}.py").read_bytes() for name in names]
    return [*texts, b"int main(void)\n{\n\tif (x)\n\t\treturn 1;\n}\n" * 20]


@pytest.fixture(scope="session")
def code() -> list[bytes]:
    return code_texts()


@pytest.fixture(scope="session", params=KINDS)
def tokenizer(
    request: pytest.FixtureRequest, code: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> CodeTokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_bytes(train_tokenizer(code, TokenizerConfig(kind=request.param, vocab_size=1024)))
    return CodeTokenizer.load(path)
