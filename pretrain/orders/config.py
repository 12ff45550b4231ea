"""The mixture of orders a model is trained in."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, model_validator

from cluster.config import Config


class ObjectiveConfig(Config):
    """How many tokens of a segment are predicted, and in which orders; the three weights need not sum to one."""

    target_share: float = Field(default=0.5, gt=0.0, le=1.0)
    """P / L: predictions per token of a segment; what is not predicted is context. 1 predicts every token."""
    spans: NonNegativeFloat = 1.0
    """Weight of random spans in random order (XLNet)."""
    left_to_right: NonNegativeFloat = 1.0
    """Weight of a random cut, then left to right."""
    infill: NonNegativeFloat = 1.0
    """Weight of a hole in the middle, left to right, given both sides."""
    max_span_words: int = Field(default=5, gt=0, le=1000)
    """Spans are of 1 to this many words, n words with a probability proportional to 1/n."""
    span_unit: Literal["word", "token"] = "word"
    """What spans are counted in: "word" never leaves half an identifier to be guessed from its other half."""
    order_in_spans: Literal["random", "left_to_right"] = "random"
    """"random" is XLNet's uniform permutation of all predicted tokens, which trains every conditional that scoring
    and any-order decoding can ask for. "left_to_right" keeps spans in random order and goes left to right inside
    each, which is closer to how text is written."""
    known_length_share: float = Field(default=0.5, ge=0.0, le=1.0)
    """Share of holes whose length shows in the positions. The others have slack in their layout, and the model
    predicts where they end."""
    max_gap_tokens: int = Field(default=32, gt=0, le=65_536)
    """A hole of unknown length is laid out 1 to this many positions longer than it is."""

    @model_validator(mode="after")
    def _some_order(self) -> "ObjectiveConfig":
        if self.spans + self.left_to_right + self.infill == 0:
            raise ValueError("one of spans, left_to_right, infill must be above 0")
        return self

    def num_targets(self, segment_tokens: int) -> int:
        """P for segments of L tokens, at least 1."""
        return max(1, round(self.target_share * segment_tokens))

    def hides_lengths(self, segment_tokens: int) -> bool:
        """Whether some holes have an unknown length; a single prediction cannot be a token and the hole's end."""
        return self.infill > 0 and self.known_length_share < 1 and self.num_targets(segment_tokens) > 1

    def extent(self, segment_tokens: int) -> int:
        """Positions of segments of L tokens are below this, the gaps of holes included."""
        return segment_tokens + (self.max_gap_tokens if self.hides_lengths(segment_tokens) else 0)
