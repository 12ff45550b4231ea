"""A model's folder brings back the model, or says what is wrong."""

from pathlib import Path

import pytest
import torch

from cluster.errors import UserError
from pretrain.model.config import ModelConfig
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.weights import load_pretrained, save_model


@pytest.fixture
def saved(tmp_path: Path) -> tuple[TwoStreamTransformer, Path]:
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text("{}")
    model = TwoStreamTransformer(
        ModelConfig(num_layers=1, model_dim=8, num_heads=2, head_dim=4, ffn_dim=8), vocab_size=11
    )
    save_model(model, tmp_path / "model", tokenizer)
    return model, tmp_path / "model"


def test_weights_and_shape_come_back(saved: tuple[TwoStreamTransformer, Path]) -> None:
    model, folder = saved
    loaded = load_pretrained(folder)
    assert loaded.config == model.config
    assert loaded.vocab_size == 11
    for name, parameter in model.named_parameters():
        assert torch.equal(dict(loaded.named_parameters())[name], parameter)


def test_a_flipped_bit_is_found(saved: tuple[TwoStreamTransformer, Path]) -> None:
    _, folder = saved
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"model\.safetensors is missing or damaged"):
        load_pretrained(folder)


def test_an_empty_folder_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no model"):
        load_pretrained(tmp_path)
