"""The model's shape."""

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from cluster.config import Config


class ModelConfig(Config):
    """Shape of a two-stream permutation language model. The vocabulary's size comes from the tokenizer."""

    num_layers: PositiveInt = 4
    model_dim: PositiveInt = 256
    num_heads: PositiveInt = 4
    head_dim: PositiveInt = 64
    ffn_dim: PositiveInt = 1024
    memory_tokens: int = Field(default=192, ge=0)
    """M: how many positions of the past each layer attends to; 0 switches segment recurrence off."""
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    norm: Literal["post", "pre"] = "post"
    """Where LayerNorm stands: after each residual sum (XLNet) or before each sub-layer."""

    @model_validator(mode="after")
    def _sinusoids_need_pairs(self) -> "ModelConfig":
        if self.model_dim % 2:
            raise ValueError(f"model_dim must be even (sine and cosine halves), got {self.model_dim}")
        return self
