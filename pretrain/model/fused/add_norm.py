"""LayerNorm of a residual sum for CPUs, in C++: one pass each way, the result in both types that are wanted.

Shapes: X rows, D model.
"""

import torch
from torch import Tensor

from pretrain.model.fused.operators import try_load_operators
from pretrain.model.precision import at_least_float32

_STEP = 16


def add_norm_fusable(rows: Tensor, update: Tensor) -> bool:
    """Return whether `add_norm` can be used: float32 rows on a CPU with a compiler, not while compiling."""
    if torch.compiler.is_compiling() or rows.device.type != "cpu" or rows.shape[-1] % _STEP:
        return False
    known = rows.dtype == torch.float32 and update.dtype in (torch.float32, torch.bfloat16)
    return known and try_load_operators()


def add_norm(
    rows: Tensor, update: Tensor, weight_D: Tensor, bias_D: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Return LayerNorm(rows + update) [..., D], computed in float32: as float32 and in the type of the update.

    Gradients of weight and bias are added up in float32, in an order that the number of threads does not change.
    """
    flat_XD = rows.reshape(-1, rows.shape[-1]), update.reshape(-1, rows.shape[-1])
    wide_XD, narrow_XD = _AddNorm.apply(  # type: ignore[no-untyped-call]
        *flat_XD, at_least_float32(weight_D), at_least_float32(bias_D), epsilon
    )
    wide = wide_XD.view(rows.shape)
    return wide, wide if narrow_XD is None else narrow_XD.view(rows.shape)


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        rows_XD: Tensor,
        update_XD: Tensor,
        weight_D: Tensor,
        bias_D: Tensor,
        epsilon: float,
    ) -> tuple[Tensor, Tensor | None]:
        wide_XD, narrow_XD, normal_XD, scale_X = torch.ops.permcode_attention.add_norm(
            rows_XD.contiguous(), update_XD.contiguous(), weight_D, bias_D, epsilon
        )
        ctx.save_for_backward(normal_XD, scale_X, weight_D)
        ctx.set_materialize_grads(False)
        ctx.update_dtype = update_XD.dtype  # type: ignore[attr-defined]
        return wide_XD, None if update_XD.dtype == wide_XD.dtype else narrow_XD

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        of_wide_XD, of_narrow_XD = (None if part is None else part.contiguous() for part in gradients)
        of_rows_XD, of_update_XD, of_weight_bias_2D = torch.ops.permcode_attention.add_norm_backward(
            of_wide_XD,
            of_narrow_XD,
            *ctx.saved_tensors,  # type: ignore[attr-defined]
            ctx.update_dtype,  # type: ignore[attr-defined]
        )
        return of_rows_XD, of_update_XD, *of_weight_bias_2D.unbind(0), None
