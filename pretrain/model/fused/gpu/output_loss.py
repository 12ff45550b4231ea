"""The output layer and its loss for GPUs: logits exist of some rows at a time, and their gradients are made at once.

PyTorch's own `linear_cross_entropy` returns the loss of bfloat16 rows in bfloat16, in steps of 0.016 at a loss of 2,
and Liger-Kernel's waits for the GPU in every call.

Shapes: X rows, D model, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_BLOCK = 4096
"""Logits of a row that a program holds at once."""
_LEAST_CHUNK_ROWS = 1024
"""Fewer rows do not fill a GPU."""


def chunked_loss(rows_XD: Tensor, weight_VD: Tensor, bias_V: Tensor, wanted_X: Tensor) -> Tensor:
    """Return the mean of -log softmax(rows @ weight + bias)[wanted] in nats, float32.

    Logits are rounded to the rows' type; sums over rows and over the vocabulary are float32.
    """
    loss, _, _, _ = torch.ops.permcode_gpu.output_loss(rows_XD, weight_VD, bias_V, wanted_X)
    return loss  # type: ignore[no-any-return]


def chunk_rows(num_rows: int, model_dim: int, vocab_size: int) -> int:
    """Return how many rows have logits at once: as many as take the memory of all rows, but at least 1,024."""
    return min(num_rows, max(_LEAST_CHUNK_ROWS, num_rows * model_dim // vocab_size))


def workspace_bytes(rows_XD: Tensor, weight_VD: Tensor, bias_V: Tensor, wanted_X: Tensor) -> int:
    """Return the bytes that the operator allocates besides what it returns: a chunk's logits, a product of weights."""
    num_rows, vocab_size = rows_XD.shape[0], weight_VD.shape[0]
    chunk = chunk_rows(num_rows, rows_XD.shape[1], vocab_size)
    return chunk * vocab_size * rows_XD.element_size() + weight_VD.numel() * 4 + num_rows * 4


@torch.library.custom_op("permcode_gpu::output_loss", mutates_args=())
def _output_loss(
    rows_XD: Tensor, weight_VD: Tensor, bias_V: Tensor, wanted_X: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the loss, and the gradients of rows, weights and biases of the sum over the rows."""
    from pretrain.model.fused.gpu.logit_gradients import logit_gradients

    num_rows, vocab_size = rows_XD.shape[0], weight_VD.shape[0]
    nats_X = rows_XD.new_empty(num_rows, dtype=torch.float32)
    of_rows_XD = torch.empty_like(rows_XD)
    of_weight_VD = torch.zeros_like(weight_VD, dtype=torch.float32)
    of_bias_V = torch.zeros_like(bias_V, dtype=torch.float32)
    step = chunk_rows(num_rows, rows_XD.shape[1], vocab_size)
    for first in range(0, num_rows, step):
        chunk = slice(first, first + step)
        rows_CD = rows_XD[chunk]
        logits_CV = functional.linear(rows_CD, weight_VD, bias_V)
        logit_gradients[(len(rows_CD),)](
            logits_CV, wanted_X[chunk], nats_X[chunk], logits_CV.stride(0), vocab_size, BLOCK=_BLOCK
        )
        torch.mm(logits_CV, weight_VD, out=of_rows_XD[chunk])
        of_weight_VD += _product_in_float32(logits_CV.T, rows_CD)
        of_bias_V += logits_CV.sum(dim=0, dtype=torch.float32)
    return nats_X.mean(), of_rows_XD, of_weight_VD, of_bias_V


def _product_in_float32(left_VC: Tensor, right_CD: Tensor) -> Tensor:
    if left_VC.device.type == "cuda":
        return torch.mm(left_VC, right_CD, out_dtype=torch.float32)
    return left_VC.float() @ right_CD.float()


@_output_loss.register_fake
def _(
    rows_XD: Tensor, weight_VD: Tensor, bias_V: Tensor, wanted_X: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (
        rows_XD.new_empty((), dtype=torch.float32),
        torch.empty_like(rows_XD),
        torch.empty_like(weight_VD, dtype=torch.float32),
        torch.empty_like(bias_V, dtype=torch.float32),
    )


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.types = [tensor.dtype for tensor in inputs[:3]]
    ctx.num_rows = inputs[0].shape[0]
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    scale = gradient / ctx.num_rows
    gradients = [
        (of_sum * scale).to(dtype) for of_sum, dtype in zip(ctx.saved_tensors, ctx.types, strict=True)
    ]
    return (*gradients, None)


_output_loss.register_autograd(_backward, setup_context=_save)
