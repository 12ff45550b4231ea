"""The settings of decoding: greedy, beam search or sampling."""

import math

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from cluster.config import Config
from pretrain.inference.infilling import HOLE_LENGTH_POWER
from pretrain.inference.sampling import Sampling

_SPARE_TOKENS = 16
"""Tokens that a text may have beyond `max_length_ratio`, because short sources can have long texts."""


class DecodingConfig(Config):
    """The settings of decoding; greedy by default. Every way of decoding uses caches and many texts at once."""

    beam: int = Field(default=1, ge=1, le=1024)
    """Hypotheses kept for every text; 1 means no beam search."""
    length_power: NonNegativeFloat = 1.0
    """A beam's hypotheses are compared by log-likelihood / tokens ** length_power, a hole's fillings of several lengths
    by log-likelihood / tokens ** (0.7 * length_power)."""
    max_new_tokens: PositiveInt | None = None
    """The most tokens of a written text; None: the system's `target_tokens`."""
    max_length_ratio: PositiveFloat | None = None
    """The most tokens of a written text per token of its source (of a hole, of both sides), besides `_SPARE_TOKENS`; it
    limits texts that repeat themselves endlessly. None: `max_new_tokens` is the only limit."""
    may_be_empty: bool = False
    """Whether a text may end before its first token. No task has an item whose target is empty."""
    max_repeats: int | None = Field(default=None, ge=2)
    """How often a run of at most 64 tokens may be repeated, if the repetitions have 16 tokens or more; None for no
    limit. A small model does not leave a loop by itself."""
    temperature: NonNegativeFloat = 0.0
    """0 takes the most likely token; above 0, tokens are sampled."""
    top_k: PositiveInt | None = None
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    seed: NonNegativeInt = 0
    """The seed of sampling. A sample depends on it and on the source, not on the other texts; a source given several
    times at once gets a different sample each time."""
    batch: PositiveInt = 32
    """Texts decoded side by side; a hole counts once for each place length that it is laid out with."""

    @model_validator(mode="after")
    def _one_way(self) -> "DecodingConfig":
        if self.beam > 1 and self.temperature > 0:
            raise ValueError(
                f"beam={self.beam} and temperature={self.temperature} exclude each other: a beam draws nothing"
            )
        return self

    @property
    def power_of_holes(self) -> float:
        """The power by which fillings of holes are compared."""
        return HOLE_LENGTH_POWER * self.length_power

    def limit_tokens(self, source_tokens: int, max_new_tokens: int) -> int:
        """Return the most tokens of the text for a source of `source_tokens`."""
        if self.max_length_ratio is None:
            return max_new_tokens
        return min(max_new_tokens, math.ceil(self.max_length_ratio * source_tokens) + _SPARE_TOKENS)

    @property
    def sampling(self) -> Sampling:
        """The settings of sampling, for decoding without a beam."""
        return Sampling(self.temperature, self.top_k, self.top_p, self.seed)
