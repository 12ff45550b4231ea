"""An XLNet's config says the same as ours, or is refused with what stands in the way."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import UserError
from pretrain.hf.xlnet_config import read_xlnet_config, xlnet_config_json
from pretrain.model.config import ModelConfig, RotaryPositions
from tests.unit.pretrain.hf.conftest import SMALL

# What the published xlnet-base-cased says.
BASE: dict[str, Any] = {
    "architectures": ["XLNetLMHeadModel"],
    "attn_type": "bi",
    "bi_data": False,
    "bos_token_id": 1,
    "clamp_len": -1,
    "d_head": 64,
    "d_inner": 3072,
    "d_model": 768,
    "dropout": 0.1,
    "end_n_top": 5,
    "eos_token_id": 2,
    "ff_activation": "gelu",
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "mem_len": None,
    "model_type": "xlnet",
    "n_head": 12,
    "n_layer": 12,
    "pad_token_id": 5,
    "reuse_len": None,
    "same_length": False,
    "untie_r": True,
    "vocab_size": 32000,
}


def write(folder: Path, content: object) -> Path:
    (folder / "config.json").write_text(json.dumps(content))
    return folder


def imported(folder: Path, memory_tokens: int | None = None) -> ModelConfig:
    xlnet = read_xlnet_config(folder)
    return ModelConfig(**xlnet.model(memory_tokens), segment_encodings=True)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"memory_tokens": 0},
        {"tie_embeddings": False},
        {"activation": "gelu"},
        {"norm_epsilon": 1e-12, "dropout": 0.0, "attention_dropout": 0.0},
    ],
)
def test_a_config_comes_back_as_it_went(change: dict[str, Any], tmp_path: Path) -> None:
    config = SMALL.model_copy(update=change)
    folder = write(
        tmp_path, xlnet_config_json(config, vocab_size=77, tokenizer_sha256="ab", segment_tokens=9)
    )
    assert imported(folder) == config
    xlnet = read_xlnet_config(folder)
    assert (xlnet.vocab_size, xlnet.permcode.tokenizer_sha256, xlnet.permcode.segment_tokens) == (77, "ab", 9)


def test_the_published_base_config_is_read(tmp_path: Path) -> None:
    config = imported(write(tmp_path, BASE))
    assert (config.num_layers, config.model_dim, config.num_heads, config.head_dim) == (12, 768, 12, 64)
    assert (config.ffn_dim, config.activation, config.norm, config.norm_epsilon) == (
        3072,
        "gelu",
        "post",
        1e-12,
    )
    assert (config.dropout, config.attention_dropout) == (0.1, 0.1), "XLNet has one rate for all"
    assert config.tie_embeddings
    assert config.memory_tokens == 0
    assert imported(tmp_path, memory_tokens=384).memory_tokens == 384


def test_what_a_config_leaves_out_is_xlnets_default_and_old_names_are_known(tmp_path: Path) -> None:
    config = imported(write(tmp_path, {"model_type": "xlnet", "hidden_size": 64, "num_hidden_layers": 2}))
    assert (config.num_layers, config.model_dim, config.num_heads, config.head_dim) == (2, 64, 16, 4)
    assert (config.ffn_dim, config.memory_tokens) == (4096, 512)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "bert"}, "model_type is 'bert'"),
        ({"attn_type": "uni"}, "attn_type='uni'"),
        ({"bi_data": True}, "bi_data=true"),
        ({"clamp_len": 400}, "clamp_len=400"),
        ({"reuse_len": 256}, "reuse_len=256"),
        ({"ff_activation": "gelu_new"}, "ff_activation='gelu_new'"),
        ({"d_head": 32}, "d_head=32"),
        ({"n_head": 7, "d_head": None}, "d_model / n_head = 768 / 7"),
        ({"d_model": 15, "n_head": 5, "d_head": 3}, "d_model=15 must be even"),
        ({"n_layer": 0}, "n_layer=0"),
        ({"d_model": "wide"}, "d_model='wide'"),
        ({"dropout": 1.5}, "dropout=1.5"),
        ({"layer_norm_eps": float("inf")}, "layer_norm_eps=inf"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps=nan"),
    ],
)
def test_what_would_compute_other_numbers_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        read_xlnet_config(write(tmp_path, BASE | change))
    assert message in str(caught.value)
    assert str(tmp_path / "config.json") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("reuse_len", [None, 0, -1])
def test_segments_that_do_not_overlap_are_read(reuse_len: int | None, tmp_path: Path) -> None:
    imported(write(tmp_path, BASE | {"reuse_len": reuse_len}))


@pytest.mark.parametrize("content", [[], 3, None, "xlnet"])
def test_a_config_that_is_no_object_is_refused(content: object, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="model_type is None"):
        read_xlnet_config(write(tmp_path, content))


@pytest.mark.parametrize("content", ["{", "[" * 200_000, '{"a": ' * 200_000])
def test_a_config_that_cannot_be_read_is_the_users_to_restore(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=r"config\.json is damaged \(not JSON\): restore it$"):
        read_xlnet_config(tmp_path)


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config\.json is missing"):
        read_xlnet_config(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm": "pre"}, "no pre-norm"),
        ({"activation": "swiglu"}, "no swiglu"),
        ({"positions": RotaryPositions()}, "no rotary positions"),
        ({"head_dim": 8}, "3 heads of 8 for model_dim=12"),
    ],
)
def test_what_xlnet_cannot_express_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        xlnet_config_json(SMALL.model_copy(update=change), vocab_size=77)
