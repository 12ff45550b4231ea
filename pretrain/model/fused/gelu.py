"""GELU of a linear layer's sum and bias for CPUs, in C++: one pass each way, the bias and its gradient included.

Shapes: X rows, F columns.
"""

import torch
from torch import Tensor

from pretrain.model.fused.operators import try_load_operators
from pretrain.model.precision import at_least_float32

_STEP = 16


def bias_gelu_fusable(dtype: torch.dtype, bias_F: Tensor) -> bool:
    """Return whether `bias_gelu` can be used for x of this type.

    It needs float32 or bfloat16 on a CPU with a compiler, and cannot be used while compiling.
    """
    if torch.compiler.is_compiling() or bias_F.device.type != "cpu" or len(bias_F) % _STEP:
        return False
    return dtype in (torch.float32, torch.bfloat16) and try_load_operators()


def bias_gelu(x: Tensor, bias_F: Tensor) -> Tensor:
    """Return gelu(x + bias) [..., F] in the type of x, computed in float32.

    The gradient of the bias is added up in float32, in an order that the number of threads does not change.
    """
    y_XF: Tensor = _BiasGelu.apply(x.reshape(-1, x.shape[-1]), at_least_float32(bias_F))  # type: ignore[no-untyped-call]
    return y_XF.view(x.shape)


class _BiasGelu(torch.autograd.Function):
    """Keeps the slope instead of x: of the same size beside float32, and as small and finer beside bfloat16."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x_XF: Tensor, bias_F: Tensor) -> Tensor:
        keeps_slope = any(ctx.needs_input_grad)  # type: ignore[attr-defined]
        y_XF, slope_XF = torch.ops.permcode_attention.bias_gelu(x_XF.contiguous(), bias_F, keeps_slope)
        ctx.save_for_backward(slope_XF)
        return y_XF  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (slope_XF,) = ctx.saved_tensors  # type: ignore[attr-defined]
        of_x_XF, of_bias_F = torch.ops.permcode_attention.bias_gelu_backward(
            gradients[0].contiguous(), slope_XF
        )
        return of_x_XF, of_bias_F
