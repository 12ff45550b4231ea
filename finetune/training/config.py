"""The settings of training; every system of an experiment without settings of its own gets the same."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from cluster.config import Config


class FitConfig(Config):
    """The settings of training. Batches contain examples of similar length, up to `batch_tokens` with padding."""

    steps: PositiveInt = 1000
    """The most optimizer steps."""
    batch_tokens: PositiveInt = 4096
    """Tokens of a step, over all micro-batches and workers."""
    micro_batches: PositiveInt = 1
    """Forward passes of a step; a multiple of `num_workers`."""
    learning_rate: PositiveFloat = 1e-3
    """The peak, reached after the warm-up; the rate then falls linearly to 0."""
    learning_rates: tuple[PositiveFloat, ...] = ()
    """If given, each is tried instead of `learning_rate`, with the same steps and the first seed. The one with the
    highest headline metric on the validation split (the first of equal ones) is kept and used for the other seeds.
    """
    warmup_steps: NonNegativeInt = 50
    layer_decay: float = Field(default=1.0, gt=0.0, le=1.0)
    """Learning rate of a layer as a share of the rate of the layer above it."""
    weight_decay: NonNegativeFloat = 0.01
    clip_norm: PositiveFloat = 1.0
    evaluate_every_steps: PositiveInt = 200
    """Steps between evaluations of the headline metric on the validation split; a checkpoint follows each."""
    patience: PositiveInt | None = None
    """Consecutive evaluations without improvement before training stops; None trains all steps."""
    valid_items: PositiveInt = 200
    """The most items of the validation split that an evaluation during training uses."""
    precision: Literal["bf16", "fp32"] = "bf16"
    zero_stage: Literal[0, 1, 2] = 0
    num_workers: PositiveInt = 1

    @model_validator(mode="after")
    def _fits_together(self) -> "FitConfig":
        if self.warmup_steps >= self.steps:
            raise ValueError(f"warmup_steps={self.warmup_steps} must be less than steps={self.steps}")
        names = [rate_name(rate) for rate in self.learning_rates]
        if len(set(names)) < len(names):
            raise ValueError(f"learning_rates={list(self.learning_rates)} names a rate twice")
        if self.micro_batches % self.num_workers:
            raise ValueError(
                f"micro_batches={self.micro_batches} must be a multiple of num_workers={self.num_workers}"
            )
        return self

    def with_rate(self, learning_rate: float) -> "FitConfig":
        """Return the same config with this learning rate only."""
        return self.model_copy(update={"learning_rate": learning_rate, "learning_rates": ()})


def rate_name(learning_rate: float) -> str:
    """Return the name of the folder, below the job's, in which this rate is tried."""
    return f"rate-{learning_rate:g}"
