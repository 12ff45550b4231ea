"""Where bfloat16 is not exact enough."""

import torch
from torch import Tensor


def at_least_float32(tensor: Tensor) -> Tensor:
    """The tensor in float32, or in float64 if it is that already; gradients are added up in the same type."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def product_dtype(rows: Tensor) -> torch.dtype:
    """The type in which a linear layer gives what it makes of `rows`."""
    device = rows.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):  # plan traces shapes alone
        return rows.dtype
    return torch.get_autocast_dtype(device)
