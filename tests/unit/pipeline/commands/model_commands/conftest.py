"""Tiny models of random weights, as folders."""

from pathlib import Path

import pytest
import torch

from data_prep.steps.tokenizer_training import train_tokenizer
from data_prep.tokenizer import CodeTokenizer
from data_prep.tokenizers.config import TokenizerConfig
from pretrain.model.config import AbsoluteLearnedPositions, ModelConfig
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.weights import save_model
from tests.example_corpus import tiny_model
from tests.unit.pipeline.commands.model_commands.command import CODE, SEGMENT


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_bytes(train_tokenizer([CODE.encode()] * 3, TokenizerConfig(vocab_size=350)))
    return path


@pytest.fixture(scope="module")
def model(tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose pretraining is finished."""
    run = tmp_path_factory.mktemp("run")
    loaded = CodeTokenizer.load(tokenizer)
    network = tiny_model(loaded.vocab_size)
    with torch.no_grad():  # so that lines end now and then
        network.output_bias_V[int(loaded.encode("\n")[0])] += 4.0
    save_model(network, run / "pretrain-0123456789ab" / "model", tokenizer, segment_tokens=SEGMENT)
    return run


@pytest.fixture(scope="module")
def short_model(tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that can place 24 tokens."""
    config = ModelConfig(
        num_layers=1,
        model_dim=16,
        num_heads=1,
        head_dim=16,
        ffn_dim=16,
        memory_tokens=0,
        positions=AbsoluteLearnedPositions(max_positions=24),
    )
    network = TwoStreamTransformer(config, CodeTokenizer.load(tokenizer).vocab_size)
    folder = tmp_path_factory.mktemp("short")
    save_model(network, folder, tokenizer, segment_tokens=24)
    return folder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "code.py"
    path.write_text(CODE, encoding="utf-8")
    return path
