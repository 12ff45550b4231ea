"""Products with weights that no longer change.

Shapes: I input, O output.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional


class FrozenLinear:
    """x W^T + b, and GELU of it if asked for; on a CPU with the weights laid out once as oneDNN reads them.

    A few rows at a time cost what it takes to read the weights, so their layout decides. The weights must not change
    afterwards.
    """

    def __init__(
        self, weight_OI: Tensor, bias_O: Tensor | None = None, after: Literal["none", "gelu"] = "none"
    ) -> None:
        self.weight_OI, self.bias_O, self._after = weight_OI.detach(), bias_O, after
        self._packed = _packed(self.weight_OI)

    def __call__(self, rows: Tensor) -> Tensor:
        """The product, in the type of the weights."""
        if self._packed is not None and rows.numel():
            product: Tensor = torch.ops.mkldnn._linear_pointwise(
                rows, self._packed, self.bias_O, self._after, [], "none" if self._after == "gelu" else ""
            )
            return product
        product = functional.linear(rows, self.weight_OI, self.bias_O)
        return functional.gelu(product) if self._after == "gelu" else product


def _packed(weight_OI: Tensor) -> Tensor | None:
    """The weights in oneDNN's layout, as PyTorch's own compiler packs frozen ones; None where it cannot."""
    if weight_OI.device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return None
    if weight_OI.dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return None
    if weight_OI.dtype not in (torch.float32, torch.bfloat16):
        return None
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_OI.contiguous(), None)
    return packed
