"""Dropout: PyTorch's, or on CPUs our own in C++, which takes a fifth of the time and keeps no mask."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from pretrain.model.fused.operators import try_load_operators

_STEP = 16


class Dropout(nn.Module):
    """Zeros with `probability` in training, the rest scaled so that the mean stays (Srivastava et al. 2014).

    What is dropped is a function of the state of PyTorch's generator for the device, as with `nn.Dropout`.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` with some numbers dropped, in its type."""
        if not self.training or self.probability == 0.0:
            return x
        if _fusable(x):
            dropped: Tensor = _Dropout.apply(x, self.probability)  # type: ignore[no-untyped-call]
            return dropped
        return functional.dropout(x, self.probability)

    def extra_repr(self) -> str:
        """Return the text for printing the module."""
        return f"probability={self.probability}"


def _fusable(x: Tensor) -> bool:
    if torch.compiler.is_compiling() or x.device.type != "cpu" or x.numel() % _STEP:
        return False
    return x.dtype in (torch.float32, torch.bfloat16) and try_load_operators()


class _Dropout(torch.autograd.Function):
    """Dropout in C++; the gradient is dropped like the input, because the same seed gives the same choices."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, probability: float) -> Tensor:
        seed = int(torch.randint(-(2**63), 2**63 - 1, ()))
        ctx.dropped = (probability, seed)  # type: ignore[attr-defined]
        return torch.ops.permcode_attention.dropout(x.contiguous(), probability, seed)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None]:
        dropped = torch.ops.permcode_attention.dropout(
            gradients[0].contiguous(),
            *ctx.dropped,  # type: ignore[attr-defined]
        )
        return dropped, None
