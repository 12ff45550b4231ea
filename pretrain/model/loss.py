"""The loss of predictions, from logits or straight from the rows below the output layer.

Shapes: B lanes, P predicted, D model, V vocabulary, X = B P.
"""

import importlib.util
import logging
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from pretrain.model.fused.cross_entropy import cross_entropy_fusable, fused_cross_entropy
from pretrain.model.precision import at_least_float32

_log = logging.getLogger(__name__)


def prediction_loss(logits_BPV: Tensor, wanted_BP: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of the wanted tokens in nats, computed in float32 at least."""
    logits_XV, wanted_X = logits_BPV.flatten(0, 1), wanted_BP.flatten()
    if cross_entropy_fusable(logits_XV):
        return fused_cross_entropy(logits_XV, wanted_X)
    return functional.cross_entropy(at_least_float32(logits_XV), wanted_X)


def output_loss(rows_BPD: Tensor, weight_VD: Tensor, bias_V: Tensor, wanted_BP: Tensor) -> Tensor:
    """Return `prediction_loss` of the logits rows @ weight + bias.

    On a GPU with Liger-Kernel the logits of a few rows at a time are in memory, and their gradients are made with them.
    """
    if _chunks_logits(rows_BPD.device):
        return chunked_loss(rows_BPD, weight_VD, bias_V, wanted_BP)
    return prediction_loss(functional.linear(rows_BPD, weight_VD, bias_V), wanted_BP)


def chunked_loss(rows_BPD: Tensor, weight_VD: Tensor, bias_V: Tensor, wanted_BP: Tensor) -> Tensor:
    """Compute `output_loss` by Liger-Kernel, sums of gradients in float32; needs a GPU, or Triton's interpreter."""
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

    loss, *_ = LigerFusedLinearCrossEntropyFunction.apply(
        *(rows_BPD.flatten(0, 1), weight_VD, wanted_BP.flatten(), bias_V),
        *(None, -100, 0.0, 0.0, "mean", None, False, torch.float32),
    )
    return loss  # type: ignore[no-any-return]


def _chunks_logits(device: torch.device) -> bool:
    # While torch compiles, its own compiler fuses the loss, and Liger's function would break the graph.
    return device.type == "cuda" and not torch.compiler.is_compiling() and _has_liger()


@cache
def _has_liger() -> bool:
    found = importlib.util.find_spec("liger_kernel") is not None
    if not found:
        _log.warning("the loss keeps all logits in memory: pip install 'permcode[gpu]' for one that does not")
    return found
