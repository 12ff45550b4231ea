"""Which parameter learns how fast."""

import torch
from torch import nn

from finetune.modalities.base import Learner
from finetune.training.config import FitConfig


def rate_share(config: FitConfig, step: int) -> float:
    """Share of the peak rate at a step, from 0: linear warm-up, then linearly down to `final_share`."""
    if step < config.warmup_steps:
        return (step + 1) / (config.warmup_steps + 1)
    left = 1.0 - (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps)
    return config.final_share + (1.0 - config.final_share) * left


def adamw(learner: Learner, config: FitConfig) -> torch.optim.AdamW:
    """AdamW over what is trained, in groups of one `weight_decay` and `rate_share`; vectors do not decay.

    Its rate is 0 until `set_learning_rate`: DeepSpeed's optimizers may make a step of their own when they are built.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in learner.module.named_parameters():
        if parameter.requires_grad:
            decay = config.weight_decay if parameter.dim() >= 2 else 0.0
            share = config.layer_decay ** learner.depth(name)
            groups.setdefault((share, decay), []).append(parameter)
    described = [
        {"params": parameters, "weight_decay": decay, "rate_share": share}
        for (share, decay), parameters in sorted(groups.items(), key=lambda group: group[0], reverse=True)
    ]
    return torch.optim.AdamW(described, lr=0.0, betas=(0.9, config.beta2), eps=1e-6, fused=True)
