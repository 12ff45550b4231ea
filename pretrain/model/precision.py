"""Types of computations for which bfloat16 is not exact enough."""

import torch
from torch import Tensor


def at_least_float32(tensor: Tensor) -> Tensor:
    """Return the tensor in float32, or in float64 if it is float64; gradients are summed in the same type."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def product_dtype(rows: Tensor) -> torch.dtype:
    """Return the type of a linear layer's output for the input `rows`, which autocast may change."""
    device = rows.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):  # plan traces shapes alone
        return rows.dtype
    return torch.get_autocast_dtype(device)
