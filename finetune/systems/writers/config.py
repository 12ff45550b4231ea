"""The settings that all neural writers share."""

from typing import Literal

from pydantic import Field, PositiveInt

from cluster.config import Config
from finetune.decoding.config import DecodingConfig


class WriterConfig(Config):
    """Limits, label smoothing and decoding. Longer texts are truncated, and counted in the writer's `cut`."""

    source_tokens: PositiveInt = 384
    """The most tokens of a source, of both sides of a hole together."""
    target_tokens: PositiveInt = 256
    """The most tokens of a training target; a truncated target is learnt without its end."""
    keep: Literal["start", "end"] = "start"
    """Which end of a source that is too long is kept: `end` if the target continues the source. Of a hole's sides, the
    tokens next to the hole are kept."""
    label_smoothing: float = Field(default=0.1, ge=0.0, lt=1.0)
    decoding: DecodingConfig = DecodingConfig()

    @property
    def max_new_tokens(self) -> int:
        """The most tokens of a written text."""
        return self.decoding.max_new_tokens or self.target_tokens
