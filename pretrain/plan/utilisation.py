"""What share of a GPU's peak a run reaches (MFU), from its config and its measured speed."""

import re

from pretrain.config import PretrainConfig
from pretrain.plan.flops import training_flops_per_step
from pretrain.plan.hardware import GPUS, Gpu


def flops_per_token(config: PretrainConfig, vocab_size: int) -> float:
    """Operations of forward and backward pass for each corpus token; what is computed twice counts once."""
    flops = training_flops_per_step(
        config.model,
        config.lanes,
        config.segment_tokens,
        config.objective.num_targets(config.segment_tokens),
        vocab_size,
        config.micro_batch_lanes,
        extent_tokens=config.objective.extent(config.segment_tokens),
    )
    return flops / config.tokens_per_step


def gpu_of_device(device_name: str) -> Gpu | None:
    """The known GPU that a driver calls `device_name`, such as "NVIDIA H100 80GB HBM3"; None if it is none of them."""
    spoken = re.sub(r"[^a-z0-9]", "", device_name.lower())
    matches = [gpu for gpu in GPUS if all(part in spoken for part in gpu.name.split("-"))]
    return max(matches, key=lambda gpu: len(gpu.name), default=None)
