"""Linear and feed-forward layers whose weights no longer change, laid out once for decoding.

Shapes: X rows, I input, O output, B lanes, Q rows, D model, F feed-forward.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from pretrain.model.feed_forward import FeedForward, SwiGLU
from pretrain.model.fused.operators import try_load_operators

MAX_FEW_ROWS = 8
"""The most rows, of all lanes together, whose cost is the reading of the weights; for more, oneDNN is faster."""


class FrozenLinear:
    """x W^T + b, optionally with GELU; the weights must not change afterwards.

    On a CPU with a compiler, few rows use an operator that reads the weights once, row by row; more rows use oneDNN,
    with the weights packed once in its layout.
    """

    def __init__(
        self, weight_OI: Tensor, bias_O: Tensor | None = None, after: Literal["none", "gelu"] = "none"
    ) -> None:
        self.weight_OI, self.bias_O, self._after = weight_OI.detach().contiguous(), bias_O, after
        self.packed = packed_weight(self.weight_OI)
        self._takes_few_rows = after == "none" and _few_rows_fusable(self.weight_OI)

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the product, in the type of the weights."""
        if self._takes_few_rows and rows.numel() <= MAX_FEW_ROWS * rows.shape[-1]:
            rows_XI = rows.reshape(-1, rows.shape[-1]).contiguous()
            product_XO: Tensor = torch.ops.permcode_attention.few_rows_linear(
                rows_XI, self.weight_OI, self.bias_O
            )
            return product_XO.view(*rows.shape[:-1], len(self.weight_OI))
        if self.packed is not None and rows.numel():
            product: Tensor = torch.ops.mkldnn._linear_pointwise(
                rows, self.packed, self.bias_O, self._after, [], "none" if self._after == "gelu" else ""
            )
            return product
        product = functional.linear(rows, self.weight_OI, self.bias_O)
        return functional.gelu(product) if self._after == "gelu" else product


def _few_rows_fusable(weight_OI: Tensor) -> bool:
    outputs, inputs = weight_OI.shape
    known = weight_OI.dtype in (torch.float32, torch.bfloat16) and weight_OI.device.type == "cpu"
    return known and outputs % 16 == 0 and inputs % 32 == 0 and try_load_operators()


def packed_weight(weight_OI: Tensor) -> Tensor | None:
    """Return the weights in oneDNN's layout, as PyTorch's compiler packs frozen ones; None if that is not possible."""
    if weight_OI.device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return None
    if weight_OI.dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return None
    if weight_OI.dtype not in (torch.float32, torch.bfloat16):
        return None
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_OI.contiguous(), None)
    return packed


class FrozenFeedForward:
    """A `FeedForward` with this activation, or a `SwiGLU`, with frozen weights."""

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
        """Return the update of the rows [B, Q, D]."""
        up_BQF = self.up(rows_BQD)
        if self.gate is not None:
            up_BQF = functional.silu(self.gate(rows_BQD)) * up_BQF
        elif self.activation == "relu":
            up_BQF = torch.relu(up_BQF)
        return self.down(up_BQF)
