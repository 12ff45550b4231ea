"""The loss of predictions, from logits or straight from the rows below the output layer.

Shapes: B lanes, P predicted, D model, V vocabulary, X = B P.
"""

from torch import Tensor
from torch.nn import functional

from pretrain.model.fused.cross_entropy import cross_entropy_fusable, fused_cross_entropy
from pretrain.model.fused.gpu.choice import has_kernels
from pretrain.model.fused.gpu.output_loss import chunked_loss
from pretrain.model.precision import at_least_float32


def prediction_loss(logits_BPV: Tensor, wanted_BP: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of the wanted tokens in nats, computed in float32 at least."""
    logits_XV, wanted_X = logits_BPV.flatten(0, 1), wanted_BP.flatten()
    if cross_entropy_fusable(logits_XV):
        return fused_cross_entropy(logits_XV, wanted_X)
    return functional.cross_entropy(at_least_float32(logits_XV), wanted_X)


def output_loss(rows_BPD: Tensor, weight_VD: Tensor, bias_V: Tensor, wanted_BP: Tensor) -> Tensor:
    """Return `prediction_loss` of the logits rows @ weight + bias; on a GPU without all of them in memory."""
    if has_kernels(rows_BPD):
        return chunked_loss(rows_BPD.flatten(0, 1), weight_VD, bias_V, wanted_BP.flatten())
    return prediction_loss(functional.linear(rows_BPD, weight_VD, bias_V), wanted_BP)
