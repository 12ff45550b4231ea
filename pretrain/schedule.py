"""The learning rate as a pure function of the step."""

import math
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat

from cluster.config import Config


class ScheduleConfig(Config):
    """Linear warm-up, then decay to a share of the peak: along a cosine, a line, or a line at the very end.

    `wsd` (warm-up, stable, decay) holds the peak until the last `decay_share` of the steps, so a run can be made
    longer, or its decay started from any checkpoint before it.
    """

    kind: Literal["cosine", "linear", "wsd", "constant"] = "cosine"
    peak_learning_rate: PositiveFloat = 1e-3
    warmup_steps: NonNegativeInt = 100
    final_share: float = Field(default=0.1, ge=0.0, le=1.0)
    decay_share: float = Field(default=0.2, gt=0.0, le=1.0)
    """The share of all steps in which the rate decays, with `wsd`."""


def learning_rate(config: ScheduleConfig, step: int, num_steps: int) -> float:
    """Return the rate of optimizer step `step` (0-based) of `num_steps`; the first warm-up step is not zero."""
    if step < config.warmup_steps:
        return config.peak_learning_rate * (step + 1) / config.warmup_steps
    falling_from = config.warmup_steps
    if config.kind == "wsd":
        falling_from = max(falling_from, num_steps - round(config.decay_share * num_steps))
    progress = min(1.0, max(0.0, (step - falling_from) / max(1, num_steps - falling_from)))
    height = _height(config.kind, progress)
    return config.peak_learning_rate * (config.final_share + (1.0 - config.final_share) * height)


def _height(kind: str, progress: float) -> float:
    """Return the height between the final rate (0) and the peak (1) after `progress` of the decay."""
    if kind == "constant":
        return 1.0
    if kind == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * progress))
    return 1.0 - progress
