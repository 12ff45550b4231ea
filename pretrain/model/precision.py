"""Where bfloat16 is not exact enough."""

import torch
from torch import Tensor


def at_least_float32(tensor: Tensor) -> Tensor:
    """The tensor in float32, or in float64 if it is that already; gradients are added up in the same type."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
