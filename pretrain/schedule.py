"""The learning rate as a pure function of the step."""

import math

from pydantic import Field, NonNegativeInt, PositiveFloat

from cluster.config import Config


class ScheduleConfig(Config):
    """Linear warm-up, then a cosine down to a share of the peak."""

    peak_learning_rate: PositiveFloat = 1e-3
    warmup_steps: NonNegativeInt = 100
    final_share: float = Field(default=0.1, ge=0.0, le=1.0)


def learning_rate(config: ScheduleConfig, step: int, num_steps: int) -> float:
    """The rate of optimizer step `step` (0-based) of `num_steps`; the first warm-up step is not zero."""
    if step < config.warmup_steps:
        return config.peak_learning_rate * (step + 1) / config.warmup_steps
    progress = (step - config.warmup_steps) / max(1, num_steps - config.warmup_steps)
    falling_share = 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
    return config.peak_learning_rate * (config.final_share + (1.0 - config.final_share) * falling_share)
