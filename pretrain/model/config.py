"""The config of the model."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, model_validator

from cluster.config import Config

MAX_TEXT_TOKENS = 1_048_576
"""The longest segment, memory and table of positions in a config. Like the other bounds it is far above what can be
trained, so that a typing error is reported when the config is read."""


Recompute = Literal["none", "attention", "layers"]
"""What training computes again in the backward pass instead of keeping it: attention without its input, or all of a
layer but its input."""


class TransformerXLPositions(Config):
    """Relative: sinusoids of the distance, projected per layer, with two learned query biases (XLNet)."""

    kind: Literal["transformer_xl"] = "transformer_xl"


class ShawPositions(Config):
    """Relative: learned vectors per clipped distance, added to keys and to values (Shaw et al. 2018)."""

    kind: Literal["shaw"] = "shaw"
    max_distance_tokens: int = Field(default=128, gt=0, le=MAX_TEXT_TOKENS)
    """Distances beyond this, either way, share one vector."""


class RotaryPositions(Config):
    """Relative: queries and keys turned by an angle that grows with their position (Su et al. 2021)."""

    kind: Literal["rotary"] = "rotary"
    base: PositiveFloat = 10_000.0


class AbsoluteSinusoidalPositions(Config):
    """Absolute: sinusoids of the position in the segment, added to the input (Vaswani et al. 2017)."""

    kind: Literal["absolute_sinusoidal"] = "absolute_sinusoidal"


class AbsoluteLearnedPositions(Config):
    """Absolute: a learned vector per position in the segment, added to the input."""

    kind: Literal["absolute_learned"] = "absolute_learned"
    max_positions: int = Field(default=512, gt=0, le=MAX_TEXT_TOKENS)
    """The most tokens of a text."""


PositionsConfig = Annotated[
    TransformerXLPositions
    | ShawPositions
    | RotaryPositions
    | AbsoluteSinusoidalPositions
    | AbsoluteLearnedPositions,
    Field(discriminator="kind"),
]


class ModelConfig(Config):
    """Shape of a two-stream permutation language model. The vocabulary's size comes from the tokenizer."""

    num_layers: int = Field(default=4, gt=0, le=1024)
    model_dim: int = Field(default=256, gt=0, le=65_536)
    num_heads: int = Field(default=4, gt=0, le=1024)
    head_dim: int = Field(default=64, gt=0, le=65_536)
    ffn_dim: int = Field(default=1024, gt=0, le=1_048_576)
    memory_tokens: int = Field(default=192, ge=0, le=MAX_TEXT_TOKENS)
    """M: how many positions of the past each layer attends to; 0 switches segment recurrence off."""
    positions: PositionsConfig = TransformerXLPositions()
    context: Literal["bidirectional", "causal"] = "bidirectional"
    """What a given token, which is not predicted, sees of the others: all of them, or those before it, as in an
    autoregressive model."""
    segment_encodings: bool = False
    """Whether heads see if two tokens are of one document (XLNet's relative segment encodings, section 2.5)."""
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    """Dropout of embeddings, positions, the output of every sub-layer and the middle of the feed-forward network."""
    attention_dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Dropout of attention weights; above 0 the fused attention of CPUs cannot be used."""
    norm: Literal["post", "pre"] = "post"
    """The place of LayerNorm: after each residual sum (XLNet) or before each sub-layer."""
    norm_epsilon: PositiveFloat = 1e-5
    activation: Literal["gelu", "relu", "swiglu"] = "gelu"
    tie_embeddings: bool = True
    """Whether the output layer's weights are the token embedding."""

    @model_validator(mode="after")
    def _sinusoids_need_pairs(self) -> "ModelConfig":
        kind = self.positions.kind
        if kind in ("transformer_xl", "absolute_sinusoidal") and self.model_dim % 2:
            raise ValueError(f"model_dim must be even (sine and cosine halves), got {self.model_dim}")
        if kind == "rotary" and self.head_dim % 2:
            raise ValueError(f"head_dim must be even with rotary positions (pairs turn), got {self.head_dim}")
        return self

    @model_validator(mode="after")
    def _memory_needs_distances(self) -> "ModelConfig":
        if self.memory_tokens and self.positions.kind.startswith("absolute"):
            raise ValueError(
                f"memory_tokens={self.memory_tokens} cannot go with {self.positions.kind} positions: what is "
                "remembered carries the positions of its own segment, so old and new tokens would seem to stand in "
                "the same places; set memory_tokens=0 or use transformer_xl, shaw or rotary"
            )
        return self
