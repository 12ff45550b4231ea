"""What all neural writers have in common."""

from typing import Literal

from pydantic import Field, PositiveInt

from cluster.config import Config
from finetune.decoding.config import DecodingConfig


class WriterConfig(Config):
    """Limits, smoothing and decoding. What is longer than a limit is cut, and counted in the writer's `cut`."""

    source_tokens: PositiveInt = 384
    """Of a source at most, both sides of a hole together."""
    target_tokens: PositiveInt = 256
    """Of a text to learn at most; a text that is cut is learnt without its end."""
    keep: Literal["start", "end"] = "start"
    """Which end of a source that is too long stays: the end where the text continues after it. Of a hole the tokens
    next to it stay."""
    label_smoothing: float = Field(default=0.1, ge=0.0, lt=1.0)
    decoding: DecodingConfig = DecodingConfig()

    @property
    def max_new_tokens(self) -> int:
        """Longest text written."""
        return self.decoding.max_new_tokens or self.target_tokens
