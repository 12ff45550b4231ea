"""Cross entropy for CPUs, in C++: no float32 copies of the logits, and one pass for the gradient.

Shapes: X rows, V vocabulary.
"""

import torch
from torch import Tensor

from pretrain.model.fused.operators import try_load_operators


def cross_entropy_fusable(logits_XV: Tensor) -> bool:
    """Return whether `fused_cross_entropy` can be used: float32 or bfloat16 on a CPU with a compiler, not compiling."""
    if torch.compiler.is_compiling() or logits_XV.device.type != "cpu":
        return False
    return logits_XV.dtype in (torch.float32, torch.bfloat16) and try_load_operators()


def fused_cross_entropy(logits_XV: Tensor, wanted_X: Tensor) -> Tensor:
    """Return the mean of -log softmax(logits)[wanted] in nats, float32; computed in float32 for all logit types.

    Raises RuntimeError for a wanted token outside the vocabulary.
    """
    loss: Tensor = _CrossEntropy.apply(logits_XV.contiguous(), wanted_X.contiguous())  # type: ignore[no-untyped-call]
    return loss


def fused_token_nats(logits_XV: Tensor, wanted_X: Tensor) -> Tensor:
    """Return -log softmax(logits)[wanted] of every row in nats, float32 [X], without gradients.

    Raises RuntimeError for a wanted token outside the vocabulary.
    """
    nats_X: Tensor = torch.ops.permcode_attention.token_nats(
        logits_XV.detach().contiguous(), wanted_X.contiguous()
    )[0]
    return nats_X


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, logits_XV: Tensor, wanted_X: Tensor) -> Tensor:
        nats_X, masses_X2 = torch.ops.permcode_attention.token_nats(logits_XV, wanted_X)
        ctx.save_for_backward(logits_XV, wanted_X, masses_X2)
        return nats_X.mean()  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None]:
        logits_XV, wanted_X, masses_X2 = ctx.saved_tensors  # type: ignore[attr-defined]
        scale = float(gradients[0]) / len(wanted_X)
        gradient_XV = torch.ops.permcode_attention.cross_entropy_backward(
            logits_XV, wanted_X, masses_X2, scale
        )
        return gradient_XV, None
