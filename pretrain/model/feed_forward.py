"""The feed-forward network of a layer.

Shapes: B lanes, Q rows, D model, F feed-forward.
"""

from torch import Tensor, nn
from torch.nn import functional

from pretrain.model.config import ModelConfig
from pretrain.model.dropout import Dropout
from pretrain.model.fused.gelu import bias_gelu, bias_gelu_fusable
from pretrain.model.precision import product_dtype


class FeedForward(nn.Module):
    """D -> F -> D with GELU or ReLU between."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.model_dim, config.ffn_dim)
        self.down = nn.Linear(config.ffn_dim, config.model_dim)
        self.activation = config.activation
        self.dropout = Dropout(config.dropout)

    def forward(self, rows_BQD: Tensor) -> Tensor:
        """Return the update [B, Q, D]."""
        return self.down(self.dropout(self._middle(rows_BQD)))  # type: ignore[no-any-return]

    def _middle(self, rows_BQD: Tensor) -> Tensor:
        if self.activation == "relu":
            return functional.relu(self.up(rows_BQD))
        if bias_gelu_fusable(product_dtype(rows_BQD), self.up.bias):
            return bias_gelu(functional.linear(rows_BQD, self.up.weight), self.up.bias)
        return functional.gelu(self.up(rows_BQD))


class SwiGLU(nn.Module):
    """D -> F -> D, the middle gated by SiLU of another projection (Shazeer 2020); no biases."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.model_dim, config.ffn_dim, bias=False)
        self.up = nn.Linear(config.model_dim, config.ffn_dim, bias=False)
        self.down = nn.Linear(config.ffn_dim, config.model_dim, bias=False)
        self.dropout = Dropout(config.dropout)

    def forward(self, rows_BQD: Tensor) -> Tensor:
        """Return the update [B, Q, D]."""
        gated_BQF = functional.silu(self.gate(rows_BQD)) * self.up(rows_BQD)
        return self.down(self.dropout(gated_BQF))  # type: ignore[no-any-return]


def feed_forward(config: ModelConfig) -> nn.Module:
    """Return the feed-forward network that the config chooses."""
    return SwiGLU(config) if config.activation == "swiglu" else FeedForward(config)
