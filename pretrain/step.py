"""A step of training: the data it reads, its launch and its result."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pretrain.step_figures import PendingFigures


@dataclass(frozen=True)
class StepData:
    """The data of this worker for one step."""

    micro_batches: Sequence[tuple[int, Any]]
    """The index of each in the global batch, and the argument of the trainer's `loss`."""
    num_tokens: int
    digest: int = 0
    """A checksum of the data, which can be added up over workers."""
    wait_s: float = 0.0
    """How long this worker waited for the data."""


@dataclass(frozen=True)
class LaunchedStep:
    """A step whose work the device has been given."""

    step: int
    """The number of the step, from 1."""
    cursor: int
    """The data step that was read."""
    learning_rate: float
    started_s: float
    """On this worker's clock `time.perf_counter`."""
    figures: PendingFigures


@dataclass(frozen=True)
class StepResult:
    """The result of one optimizer step, the same on every worker except for its own times."""

    step: int
    """The number of the step, from 1."""
    cursor: int
    """The data step that was read."""
    loss: float
    """The mean over all micro-batches of all workers."""
    grad_norm: float
    learning_rate: float
    applied: bool
    """Whether loss and gradient were finite; otherwise only `step` and `cursor` changed."""
    num_tokens: int
    digest: int
    """The checksum over all workers, as `num_tokens` is."""
    stop_asked: bool
    step_s: float
    """Since this step's launch, or since the result of the step before it was handled, if that was later."""
    data_s: float
    """How long this worker waited for data in that time."""
    own_s_W: tuple[float, ...]
    """Every worker's time in this step before it first waited for another worker."""

    @property
    def not_finite(self) -> str:
        """What was not finite in a step that was not applied: "loss" or "gradient"."""
        return "gradient" if math.isfinite(self.loss) else "loss"
