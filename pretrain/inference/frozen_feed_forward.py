"""A feed-forward network whose weights no longer change.

Shapes: B lanes, Q rows, D model, F feed-forward.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from pretrain.inference.linear import FrozenLinear
from pretrain.model.feed_forward import FeedForward, SwiGLU


class FrozenFeedForward:
    """What a `FeedForward` with this activation, or a `SwiGLU`, computes, its weights laid out once."""

    def __init__(self, network: nn.Module, activation: str) -> None:
        assert isinstance(network, FeedForward | SwiGLU)
        self.activation = activation
        self.gate: FrozenLinear | None = None
        if isinstance(network, SwiGLU):
            self.gate = FrozenLinear(network.gate.weight)
            self.up, self.down = FrozenLinear(network.up.weight), FrozenLinear(network.down.weight)
        else:
            self.up = FrozenLinear(
                network.up.weight, network.up.bias, after="gelu" if activation == "gelu" else "none"
            )
            self.down = FrozenLinear(network.down.weight, network.down.bias)

    def __call__(self, rows_BQD: Tensor) -> Tensor:
        """What is added to the rows [B, Q, D]."""
        up_BQF = self.up(rows_BQD)
        if self.gate is not None:
            up_BQF = functional.silu(self.gate(rows_BQD)) * up_BQF
        elif self.activation == "relu":
            up_BQF = torch.relu(up_BQF)
        return self.down(up_BQF)
