"""Conversion between Hugging Face's `config.json` of an XLNet and `ModelConfig`.

Names and defaults are those of `transformers.XLNetConfig`.
"""

from pathlib import Path
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from cluster.errors import UserError
from cluster.storage import read_json
from data_prep.documents import SPECIAL_TOKENS
from pretrain.model.config import ModelConfig, TransformerXLPositions

_ACTIVATIONS = ("gelu", "relu")


class PermcodeKeys(BaseModel):
    """Settings without a key in XLNet's config; they are under the key `permcode`, which the library ignores."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    attention_dropout: float | None = Field(default=None, ge=0, lt=1)
    segment_tokens: PositiveInt | None = None
    tokenizer_sha256: str | None = None


class XLNetConfig(BaseModel):
    """An XLNet's `config.json`, without settings that do not affect the model (summaries, token ids)."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    model_type: str
    vocab_size: PositiveInt = Field(32000, validation_alias=AliasChoices("vocab_size", "n_token"))
    d_model: PositiveInt = Field(1024, validation_alias=AliasChoices("d_model", "hidden_size"))
    n_layer: PositiveInt = Field(24, validation_alias=AliasChoices("n_layer", "num_hidden_layers"))
    n_head: PositiveInt = Field(16, validation_alias=AliasChoices("n_head", "num_attention_heads"))
    d_inner: PositiveInt = 4096
    d_head: PositiveInt | None = None
    ff_activation: str = "gelu"
    attn_type: str = "bi"
    layer_norm_eps: float = Field(1e-12, gt=0)
    dropout: float = Field(0.1, ge=0, lt=1)
    mem_len: int | None = Field(512, ge=0)
    reuse_len: int | None = None
    bi_data: bool = False
    clamp_len: int = -1
    tie_word_embeddings: bool = True
    permcode: PermcodeKeys = PermcodeKeys()

    def model(self, memory_tokens: int | None = None) -> dict[str, Any]:
        """Return the fields of the model's `ModelConfig` except `segment_encodings`, which depends on the weights.

        `memory_tokens` replaces `mem_len`, which has no part in the weights; without either nothing is remembered.
        """
        attention_dropout = self.permcode.attention_dropout
        return {
            "num_layers": self.n_layer,
            "model_dim": self.d_model,
            "num_heads": self.n_head,
            "head_dim": self.d_model // self.n_head,
            "ffn_dim": self.d_inner,
            "memory_tokens": (self.mem_len or 0) if memory_tokens is None else memory_tokens,
            "positions": TransformerXLPositions(),
            "dropout": self.dropout,
            # XLNet has one rate for all.
            "attention_dropout": self.dropout if attention_dropout is None else attention_dropout,
            "norm": "post",
            "norm_epsilon": self.layer_norm_eps,
            "activation": self.ff_activation,
            "tie_embeddings": self.tie_word_embeddings,
        }


def read_xlnet_config(folder: Path) -> XLNetConfig:
    """Read the config of a folder in Hugging Face's format.

    Raises UserError when there is none, it is no XLNet's, or it has settings that permcode's model does not support.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise UserError(f"{folder} is no Hugging Face model (config.json is missing)")
    content = read_json(path, "restore it")
    if not isinstance(content, dict) or content.get("model_type") != "xlnet":
        kind = content.get("model_type") if isinstance(content, dict) else None
        raise UserError(f'{path}: model_type is {kind!r}, and only "xlnet" can be imported')
    try:
        config = XLNetConfig.model_validate(content)
    except ValidationError as error:
        raise UserError(f"{path}: {first_problem(error)}") from None
    if reason := _not_computed(config):
        raise UserError(f"{path}: {reason}")
    return config


def first_problem(error: ValidationError) -> str:
    """Return the first error of pydantic in one line with key and value."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    return f"{key}={first['input']!r} cannot be read: {first['msg']}"


def _not_computed(config: XLNetConfig) -> str | None:
    """Return why permcode's model would give other results; None if it gives the same."""
    if config.attn_type != "bi":
        return f'attn_type={config.attn_type!r} is not supported: only "bi" (XLNet) is'
    if config.bi_data:
        return "bi_data=true (half of the lanes reversed) is not supported: set it to false if text runs forwards"
    if config.clamp_len > 0:
        return f"clamp_len={config.clamp_len} is not supported: distances are never clamped here"
    if (config.reuse_len or 0) > 0:
        return (
            f"reuse_len={config.reuse_len} is not supported: segments do not overlap here and are remembered whole; "
            "set it to null if memories are not used"
        )
    if config.ff_activation not in _ACTIVATIONS:
        return (
            f"ff_activation={config.ff_activation!r} is not supported: only {' and '.join(_ACTIVATIONS)} are"
        )
    if config.d_model % 2:
        return f"d_model={config.d_model} must be even"
    head_dim = config.d_model // config.n_head
    if config.d_model % config.n_head or config.d_head not in (None, head_dim):
        return f"d_head={config.d_head} must be d_model / n_head = {config.d_model} / {config.n_head}"
    return None


def xlnet_config_json(
    config: ModelConfig,
    vocab_size: int,
    tokenizer_sha256: str | None = None,
    segment_tokens: int | None = None,
) -> dict[str, Any]:
    """Return the content of `config.json`; `tokenizer_sha256` is None for a foreign tokenizer.

    Raises UserError when XLNet's code cannot express the model.
    """
    if reason := _not_expressible(config):
        raise UserError(f"this model cannot be exported to hf: {reason}")
    notes = PermcodeKeys(
        attention_dropout=config.attention_dropout,
        segment_tokens=segment_tokens,
        tokenizer_sha256=tokenizer_sha256,
    )
    content: dict[str, Any] = {
        "architectures": ["XLNetLMHeadModel"],
        "model_type": "xlnet",
        "dtype": "float32",
        "vocab_size": vocab_size,
        "d_model": config.model_dim,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "d_head": config.head_dim,
        "d_inner": config.ffn_dim,
        "ff_activation": config.activation,
        "attn_type": "bi",
        "untie_r": True,
        "bi_data": False,
        "clamp_len": -1,
        "same_length": False,
        "layer_norm_eps": config.norm_epsilon,
        "dropout": config.dropout,
        "mem_len": config.memory_tokens,
        "reuse_len": None,
        # Without a length XLNet would remember everything.
        "use_mems_eval": config.memory_tokens > 0,
        "use_mems_train": False,
        "tie_word_embeddings": config.tie_embeddings,
        "permcode": notes.model_dump(),
    }
    if tokenizer_sha256 is not None:
        ids = {"pad_token_id": SPECIAL_TOKENS.index("<pad>"), "eos_token_id": SPECIAL_TOKENS.index("<eod>")}
        content.update(ids, bos_token_id=None)
    return content


def _not_expressible(config: ModelConfig) -> str | None:
    positions = config.positions.kind
    if positions != "transformer_xl":
        return f"XLNet has no {positions} positions (model.positions.kind), only transformer_xl"
    if config.context != "bidirectional":
        return f"XLNet has no {config.context} context (model.context), only bidirectional"
    if config.norm != "post":
        return (
            f"XLNet has no {config.norm}-norm (model.norm), only post: pretrain one to be exported with "
            "pretrain.model.norm=post"
        )
    if config.activation not in _ACTIVATIONS:
        return f"XLNet has no {config.activation} (model.activation), only {' and '.join(_ACTIVATIONS)}"
    if config.num_heads * config.head_dim != config.model_dim:
        return (
            f"XLNet's heads share model_dim exactly, here {config.num_heads} heads of {config.head_dim} "
            f"for model_dim={config.model_dim}"
        )
    return None
