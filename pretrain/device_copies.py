"""Copies between the host and its device for which the host does not wait."""

import torch
from torch import Tensor


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor in CPU memory to `device` without waiting for the work that a GPU has already been given."""
    if device.type == "cuda":  # a copy from pageable memory would wait for it
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
