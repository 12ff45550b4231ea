"""How a system writes: greedily, by a beam, by sampling."""

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
from pretrain.inference.sampling import Sampling

_SPARE_TOKENS = 16
"""What a text may have beyond its share of the source: short sources have long texts, too."""


class DecodingConfig(Config):
    """Greedy unless it says otherwise. All of it is cached and done for many texts at once."""

    beam: int = Field(default=1, ge=1, le=1024)
    """Hypotheses kept side by side for every text; 1 is no beam."""
    length_power: NonNegativeFloat = 1.0
    """A beam's hypotheses, and a hole's fillings of several lengths of place, are compared by
    log-likelihood / tokens ** length_power."""
    max_new_tokens: PositiveInt | None = None
    """Longest text written; None: the system's `target_tokens`."""
    max_length_ratio: PositiveFloat | None = None
    """Longest text written for a source, in tokens of the source (of a hole both sides), and a few more; a text that
    repeats itself without end is cut there. None: `max_new_tokens` alone counts."""
    may_be_empty: bool = False
    """Whether a text may end before its first token. No task has an item whose target is empty."""
    max_repeats: int | None = Field(default=None, ge=2)
    """How often the same tokens, at most 64, may be written in a row, once that is 16 tokens or more; None: as often as
    the model likes. A small model that has run into a loop does not find out by itself."""
    temperature: NonNegativeFloat = 0.0
    """0 takes the likeliest token; above, tokens are drawn."""
    top_k: PositiveInt | None = None
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    seed: NonNegativeInt = 0
    """Of what is drawn: it depends on this and on the source, not on what else is written; but the same source given
    several times at once is written several times, each drawn by itself."""
    batch: PositiveInt = 32
    """Texts written side by side; a hole counts once for each length of place it is laid out with."""

    @model_validator(mode="after")
    def _one_way(self) -> "DecodingConfig":
        if self.beam > 1 and self.temperature > 0:
            raise ValueError(
                f"beam={self.beam} and temperature={self.temperature} exclude each other: a beam draws nothing"
            )
        return self

    def limit_tokens(self, source_tokens: int, max_new_tokens: int) -> int:
        """Return how long the text for a source of `source_tokens` may become."""
        if self.max_length_ratio is None:
            return max_new_tokens
        return min(max_new_tokens, math.ceil(self.max_length_ratio * source_tokens) + _SPARE_TOKENS)

    @property
    def sampling(self) -> Sampling:
        """The settings of sampling, where there is no beam."""
        return Sampling(self.temperature, self.top_k, self.top_p, self.seed)
