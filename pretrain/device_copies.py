"""Copies between the host and its device for which the host does not wait, unless it needs the numbers.

Shapes: F numbers.
"""

import torch
from torch import Tensor


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor in CPU memory to `device` without waiting for the work that a GPU has already been given."""
    if device.type == "cuda":  # a copy from pageable memory would wait for it
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


class PendingNumbers:
    """Numbers on their way to the host, which the device may still be computing."""

    def __init__(self, numbers_F: Tensor) -> None:
        """Begin to copy the numbers into pinned memory, behind the work that computes them; does not wait."""
        self._copied: torch.cuda.Event | None = None
        self._host_F = numbers_F
        if numbers_F.is_cuda:
            self._host_F = torch.empty(numbers_F.shape, dtype=numbers_F.dtype, pin_memory=True)
            self._host_F.copy_(numbers_F, non_blocking=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()

    def read(self) -> list[float]:
        """Wait for the numbers and return them."""
        if self._copied is not None:
            self._copied.synchronize()
        return [float(number) for number in self._host_F.tolist()]
