"""The layers of "Attention Is All You Need" (Vaswani et al. 2017), and its encoder.

The residual stream is float32 at least; matrices are multiplied in the weights' type.

Shapes: B lanes, X rows, Q rows, K keys, S source, T target, D model, N heads, H head dim, F feed-forward, V vocabulary.
"""

import math
from typing import Literal

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn import functional

from cluster.config import Config
from pretrain.model.block import Norm
from pretrain.model.dropout import Dropout
from pretrain.model.positions import sinusoids
from pretrain.model.precision import at_least_float32

KeysValues = tuple[Tensor, Tensor]
"""Keys and values, [B, N, K, H] each."""


class StackConfig(Config):
    """The shape of a stack of layers."""

    num_layers: PositiveInt = 4
    num_heads: PositiveInt = 4
    ffn_dim: PositiveInt = 1024
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    """Dropout of embeddings, of every sub-layer's update, and of the feed-forward network's hidden layer."""
    norm: Literal["pre", "post"] = "pre"
    """The place of LayerNorm: after each sum (post), as in the paper, or before each sub-layer (pre), which trains at
    higher rates and without a long warm-up (Xiong et al. 2020)."""


class WideStackConfig(StackConfig):
    """The shape of a stack with a width of its own."""

    model_dim: PositiveInt = 256

    @model_validator(mode="after")
    def _whole_heads(self) -> "WideStackConfig":
        if self.model_dim % (2 * self.num_heads):
            raise ValueError(
                f"model_dim must be a multiple of 2 * num_heads={2 * self.num_heads}, got {self.model_dim}"
            )
        return self


class Vocabulary(nn.Module):
    """Tokens to rows, and rows to scores of tokens; one matrix for both if `tied` (section 3.4)."""

    def __init__(self, vocab_size: int, model_dim: int, dropout: float, *, tied: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, model_dim)
        self.output = None if tied else nn.Linear(model_dim, vocab_size, bias=False)
        self.output_bias_V = nn.Parameter(torch.zeros(vocab_size))
        self.dropout = Dropout(dropout)
        nn.init.normal_(self.embedding.weight, std=model_dim**-0.5)
        if self.output is not None:
            nn.init.normal_(self.output.weight, std=model_dim**-0.5)

    def rows(self, tokens_BT: Tensor, first_position: int = 0) -> Tensor:
        """Return embeddings of size 1 per element plus sinusoids of positions, [B, T, D] in float32 at least."""
        weight_VD = self.embedding.weight
        model_dim = weight_VD.shape[1]
        position_T = torch.arange(
            first_position, first_position + tokens_BT.shape[1], device=tokens_BT.device
        )
        rows_BTD = at_least_float32(functional.embedding(tokens_BT, weight_VD)) * math.sqrt(model_dim)
        dropped: Tensor = self.dropout(rows_BTD + sinusoids(position_T, model_dim).to(rows_BTD.dtype))
        return dropped

    def logits(self, rows_XD: Tensor) -> Tensor:
        """Return the scores [X, V] in the weights' type."""
        weight_VD = self.embedding.weight if self.output is None else self.output.weight
        return functional.linear(rows_XD.to(weight_VD.dtype), weight_VD, self.output_bias_V)


class Attention(nn.Module):
    """Multi-head scaled dot-product attention (section 3.2)."""

    def __init__(self, model_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(model_dim, model_dim)
        self.key_value = nn.Linear(model_dim, 2 * model_dim)
        self.output = nn.Linear(model_dim, model_dim)

    def keys_values(self, narrow_BKD: Tensor) -> KeysValues:
        """Return the keys and values of the rows that are attended to."""
        key_BKD, value_BKD = self.key_value(narrow_BKD).chunk(2, dim=-1)
        return self._heads(key_BKD), self._heads(value_BKD)

    def forward(
        self, narrow_BQD: Tensor, keys_values: KeysValues, visible: Tensor | None, *, causal: bool = False
    ) -> Tensor:
        """Return the attention's output for every row, [B, Q, D]; `visible` is bool and broadcasts to [B, N, Q, K]."""
        mixed_BNQH = functional.scaled_dot_product_attention(
            self._heads(self.query(narrow_BQD)), *keys_values, attn_mask=visible, is_causal=causal
        )
        gathered: Tensor = self.output(mixed_BNQH.transpose(1, 2).flatten(2))
        return gathered

    def _heads(self, flat_BXD: Tensor) -> Tensor:
        return flat_BXD.view(*flat_BXD.shape[:-1], self.num_heads, -1).transpose(1, 2)


class SubLayer(nn.Module):
    """The residual connection around a sub-layer, normalised before or after it."""

    def __init__(self, model_dim: int, config: StackConfig) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.norm = Norm(model_dim)
        self.dropout = Dropout(config.dropout)

    def entering(self, rows_BQD: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the input of the sub-layer."""
        return (self.norm(rows_BQD) if self.pre_norm else rows_BQD).to(dtype)

    def leaving(self, rows_BQD: Tensor, update_BQD: Tensor) -> Tensor:
        """Return the rows after the sub-layer's update."""
        rows_BQD = rows_BQD + self.dropout(update_BQD).to(rows_BQD.dtype)
        return rows_BQD if self.pre_norm else self.norm(rows_BQD)


class FeedForward(nn.Module):
    """D -> F -> D with ReLU between (section 3.3)."""

    def __init__(self, model_dim: int, config: StackConfig) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(model_dim, config.ffn_dim), nn.Linear(config.ffn_dim, model_dim)
        self.dropout = Dropout(config.dropout)

    def forward(self, narrow_BQD: Tensor) -> Tensor:
        """Return the update of the rows."""
        return self.down(self.dropout(functional.relu(self.up(narrow_BQD))))  # type: ignore[no-any-return]


class EncoderBlock(nn.Module):
    """Attention among the source's tokens, then the feed-forward network."""

    def __init__(self, model_dim: int, config: StackConfig) -> None:
        super().__init__()
        self.attention, self.around_attention = (
            Attention(model_dim, config.num_heads),
            SubLayer(model_dim, config),
        )
        self.feed_forward, self.around_feed_forward = (
            FeedForward(model_dim, config),
            SubLayer(model_dim, config),
        )

    def forward(self, rows_BSD: Tensor, visible_B11S: Tensor) -> Tensor:
        """Return the rows after this layer."""
        narrow_BSD = self.around_attention.entering(rows_BSD, self.attention.query.weight.dtype)
        gathered_BSD = self.attention(narrow_BSD, self.attention.keys_values(narrow_BSD), visible_B11S)
        rows_BSD = self.around_attention.leaving(rows_BSD, gathered_BSD)
        return fed_forward(self.feed_forward, self.around_feed_forward, rows_BSD)


def fed_forward(feed_forward: FeedForward, around: SubLayer, rows_BQD: Tensor) -> Tensor:
    """Return the rows after the feed-forward sub-layer."""
    return around.leaving(rows_BQD, feed_forward(around.entering(rows_BQD, feed_forward.up.weight.dtype)))


class Encoder(nn.Module):
    """A stack of encoder blocks."""

    def __init__(self, model_dim: int, config: StackConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(EncoderBlock(model_dim, config) for _ in range(config.num_layers))
        self.final_norm = Norm(model_dim) if config.norm == "pre" else nn.Identity()
        initialise(self)

    def forward(self, rows_BSD: Tensor, is_source_BS: Tensor) -> Tensor:
        """Return the encoded source [B, S, D] that the decoder attends to; padding is masked."""
        for block in self.blocks:
            rows_BSD = block(rows_BSD, is_source_BS[:, None, None])
        return self.final_norm(rows_BSD)  # type: ignore[no-any-return]


def initialise(stack: nn.Module) -> None:
    """Initialise weights with Glorot's uniform values, biases with zeros."""
    for module in stack.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
