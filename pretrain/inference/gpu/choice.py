"""Whether the kernels for few rows are used: on which GPUs, and after which check."""

import logging
from functools import cache

import torch
from torch import Tensor

from pretrain.model.fused.gpu.choice import failure_of, has_kernels

_log = logging.getLogger(__name__)


def runs_few_rows_kernels(query_BQNH: Tensor) -> bool:
    """Return whether these rows are on a GPU that runs the kernels; the first call on a GPU tries them."""
    return (
        query_BQNH.device.type == "cuda"
        and has_kernels(query_BQNH)
        and _is_sound(query_BQNH.device, query_BQNH.dtype, query_BQNH.shape[-1])
    )


@cache
def _is_sound(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    from pretrain.inference.gpu.self_check import deviation

    reason = failure_of(lambda: deviation(device, dtype, head_dim))
    if reason:
        name = torch.cuda.get_device_name(device)
        _log.warning("generation on %s takes more time, in plain PyTorch: %s", name, reason)
    return not reason
