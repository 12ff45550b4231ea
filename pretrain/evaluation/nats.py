"""What each predicted token costs.

Shapes: B lanes, P predicted, V vocabulary, X = B P.
"""

import torch
from torch import Tensor
from torch.nn import functional

from pretrain.model.fused.cross_entropy import cross_entropy_fusable, fused_token_nats
from pretrain.model.precision import at_least_float32

_MAX_FLOAT32_LOGITS = 1 << 24
"""Copied to float32 at once: 64 MB."""


def token_nats(logits_BPV: Tensor, wanted_BP: Tensor) -> Tensor:
    """Negative log-likelihoods [B, P] of the wanted tokens in nats, computed in float32 at least; no gradients."""
    logits_XV, wanted_X = logits_BPV.flatten(0, 1), wanted_BP.flatten()
    if cross_entropy_fusable(logits_XV):
        return fused_token_nats(logits_XV, wanted_X).view_as(wanted_BP)
    num_rows = max(1, _MAX_FLOAT32_LOGITS // logits_XV.shape[1])
    parts = [
        functional.cross_entropy(
            at_least_float32(logits_XV[first : first + num_rows]),
            wanted_X[first : first + num_rows],
            reduction="none",
        )
        for first in range(0, len(wanted_X), num_rows)
    ]
    return torch.cat(parts).view_as(wanted_BP)
