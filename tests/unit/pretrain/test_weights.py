"""A model's folder brings back the model, or says what is wrong."""

from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.errors import UserError
from cluster.storage import read_document, write_document
from pretrain.model.config import AbsoluteLearnedPositions, ModelConfig
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.weights import ModelDescription, load_pretrained, save_model


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


@pytest.mark.parametrize(
    ("key", "value"),
    [("segment_tokens", -7), ("segment_tokens", 0), ("vocab_size", -4), ("vocab_size", float("inf"))],
)
def test_sizes_that_cannot_be_are_refused(
    key: str, value: float, saved: tuple[TwoStreamTransformer, Path]
) -> None:
    config = saved[1] / "config.json"
    write_document(config, read_document(config) | {key: value})
    with pytest.raises(UserError, match="does not describe a model"):
        load_pretrained(saved[1])


@pytest.mark.parametrize(
    ("change", "segment_tokens"),
    [
        ({"memory_tokens": 3}, 512),
        ({"memory_tokens": 0}, 512),
        ({"memory_tokens": 0, "positions": AbsoluteLearnedPositions(max_positions=24)}, 24),
        ({"memory_tokens": 0, "positions": AbsoluteLearnedPositions(max_positions=900)}, 512),
    ],
)
def test_unknown_segments_are_of_512_tokens_whatever_the_memory(
    change: dict[str, Any], segment_tokens: int, saved: tuple[TwoStreamTransformer, Path]
) -> None:
    model = TwoStreamTransformer(saved[0].config.model_copy(update=change), vocab_size=11)
    assert ModelDescription.of(model, None).segment_tokens == segment_tokens
    save_model(model, saved[1], saved[1].parent / "tokenizer.json")
    config = saved[1] / "config.json"
    stored = read_document(config)
    del stored["segment_tokens"]
    write_document(config, stored)
    assert ModelDescription.read(config).segment_tokens == segment_tokens
