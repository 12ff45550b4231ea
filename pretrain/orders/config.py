"""The config of the mixture of orders that a model is trained on."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, model_validator

from cluster.config import Config

MIN_HOLES, MAX_HOLES = 2, 4
"""How many holes a segment has in orders with several."""


def most_holes(segment_tokens: int, num_targets: int) -> int:
    """Return how many holes fit a segment: each needs a token, its end, and a place of its own in the context."""
    return min(MAX_HOLES, num_targets // 2, segment_tokens - num_targets + 1)


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
    holes: NonNegativeFloat = 0.0
    """The weight of two to four holes, filled one after the other in random order, each left to right."""
    fill_in_the_middle: NonNegativeFloat = 0.0
    """The weight of a hole that is filled after the text on both sides was predicted left to right, as autoregressive
    models learn to infill (Bavarian et al. 2022, arXiv 2207.14255). It needs model.context=causal."""
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
        if not any(self.weights.values()):
            raise ValueError(f"one of {', '.join(self.weights)} must be above 0")
        return self

    @property
    def weights(self) -> dict[str, float]:
        """The weight of every kind of order."""
        return {
            "spans": self.spans,
            "left_to_right": self.left_to_right,
            "infill": self.infill,
            "holes": self.holes,
            "fill_in_the_middle": self.fill_in_the_middle,
        }

    @property
    def is_autoregressive(self) -> bool:
        """Whether every token is predicted, from nothing but tokens that were predicted before it."""
        return self.target_share == 1.0 and not self.spans + self.infill + self.holes

    @property
    def sees_both_sides(self) -> bool:
        """Whether predictions see text on both sides in some order."""
        return self.spans + self._hole_weight > 0

    @property
    def _hole_weight(self) -> float:
        return self.infill + self.holes + self.fill_in_the_middle

    def num_targets(self, segment_tokens: int) -> int:
        """Return P for segments of L tokens, at least 1."""
        return max(1, round(self.target_share * segment_tokens))

    def hides_lengths(self, segment_tokens: int) -> bool:
        """Return whether some holes have an unknown length, which needs two predictions: a token and the hole's end."""
        return self._hole_weight > 0 and self.known_length_share < 1 and self.num_targets(segment_tokens) > 1

    def extent(self, segment_tokens: int) -> int:
        """Return the bound that positions of segments of L tokens are below, the gaps of holes included."""
        if not self.hides_lengths(segment_tokens):
            return segment_tokens
        most_holes = MAX_HOLES if self.holes else 1
        return segment_tokens + most_holes * self.max_gap_tokens
