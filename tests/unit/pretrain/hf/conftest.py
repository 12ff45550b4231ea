"""A small model with random weights everywhere, in a folder, with a tokenizer of each kind."""

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from data_prep.steps.tokenizer_training import train_tokenizer
from data_prep.tokenizer import CodeTokenizer
from data_prep.tokenizers.config import TokenizerConfig, TokenizerKind
from pretrain.model.config import ModelConfig
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.weights import save_model

KINDS: tuple[TokenizerKind, ...] = ("bpe", "sentencepiece_unigram", "sentencepiece_bpe")
SMALL = ModelConfig(
    num_layers=2,
    model_dim=12,
    num_heads=3,
    head_dim=4,
    ffn_dim=20,
    memory_tokens=5,
    segment_encodings=True,
    dropout=0.1,
    attention_dropout=0.05,
    activation="relu",
)


@pytest.fixture(scope="session")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Path of a `tokenizer.json` by kind."""
    folder = tmp_path_factory.mktemp("tokenizers")
    texts = [(Path(tarfile.__file__).parent / f"{name}.py").read_bytes() for name in ("bisect", "textwrap")]
    paths = {kind: folder / f"{kind}.json" for kind in KINDS}
    for kind, path in paths.items():
        path.write_bytes(train_tokenizer(texts, TokenizerConfig(kind=kind, vocab_size=520)))
    return paths


@pytest.fixture
def save(tokenizers: dict[str, Path]) -> Callable[..., Path]:
    """Write a model folder: `save(folder, config, kind)`."""

    def save_random(folder: Path, config: ModelConfig = SMALL, kind: str = "bpe") -> Path:
        torch.manual_seed(3)
        model = TwoStreamTransformer(config, CodeTokenizer.load(tokenizers[kind]).vocab_size)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
        save_model(model, folder, tokenizers[kind], segment_tokens=7)
        return folder

    return save_random
