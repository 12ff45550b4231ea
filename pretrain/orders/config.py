"""The config of the mixture of orders that a model is trained on."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, model_validator

from cluster.config import Config


class ObjectiveConfig(Config):
    """The number of predicted tokens per segment, and the mixture of orders; the weights need not sum to one."""

    target_share: float = Field(default=0.5, gt=0.0, le=1.0)
    """P / L: predictions per token of a segment; other tokens are context. 1 predicts every token."""
    spans: NonNegativeFloat = 1.0
    """The weight of random spans in random order (XLNet)."""
    left_to_right: NonNegativeFloat = 1.0
    """The weight of left to right after a random cut."""
    infill: NonNegativeFloat = 1.0
    """The weight of a hole in the middle, left to right, given both sides."""
    max_span_words: int = Field(default=5, gt=0, le=1000)
    """The most words of a span; n words have a probability proportional to 1/n."""
    span_unit: Literal["word", "token"] = "word"
    """The unit of spans: "word" never predicts a part of an identifier from its other part."""
    order_in_spans: Literal["random", "left_to_right"] = "random"
    """"random" is XLNet's uniform permutation of all predicted tokens, which trains every conditional that scoring
    and any-order decoding can ask for. "left_to_right" keeps spans in random order and goes left to right inside
    each, which is closer to how text is written."""
    known_length_share: float = Field(default=0.5, ge=0.0, le=1.0)
    """The share of holes whose length shows in the positions. Others leave a gap, and the model predicts their end."""
    max_gap_tokens: int = Field(default=32, gt=0, le=65_536)
    """The largest gap: a hole of unknown length gets 1 to this many positions more than it has tokens."""

    @model_validator(mode="after")
    def _some_order(self) -> "ObjectiveConfig":
        if self.spans + self.left_to_right + self.infill == 0:
            raise ValueError("one of spans, left_to_right, infill must be above 0")
        return self

    @property
    def sees_both_sides(self) -> bool:
        """Whether predictions see text on both sides in some order."""
        return self.spans + self.infill > 0

    def num_targets(self, segment_tokens: int) -> int:
        """Return P for segments of L tokens, at least 1."""
        return max(1, round(self.target_share * segment_tokens))

    def hides_lengths(self, segment_tokens: int) -> bool:
        """Return whether some holes have an unknown length, which needs two predictions: a token and the hole's end."""
        return self.infill > 0 and self.known_length_share < 1 and self.num_targets(segment_tokens) > 1

    def extent(self, segment_tokens: int) -> int:
        """Return the bound that positions of segments of L tokens are below, the gaps of holes included."""
        return segment_tokens + (self.max_gap_tokens if self.hides_lengths(segment_tokens) else 0)
