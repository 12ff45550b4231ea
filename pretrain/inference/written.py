"""A text that is being written, as the ways of choosing tokens see it.

Shapes: B lanes, X some of them, V vocabulary.
"""

from typing import Protocol

from torch import Tensor

from cluster.errors import UserError
from pretrain.inference.session import Decoder


class Written(Protocol):
    """Lanes of text that are written token by token."""

    def first(self) -> Tensor:
        """Scores [B, V] of the first new token."""

    def following(self, token_B: Tensor) -> Tensor:
        """Scores [B, V] of the token after `token_B`, which is written."""

    def reorder(self, lane_B: Tensor) -> None:
        """Let lane i go on from the tokens of lane `lane_B[i]`, which has the same context."""

    def retain(self, lane_X: Tensor) -> None:
        """Forget all lanes but these, which become lanes 0, 1, ..."""


def check_positions(decoder: Decoder, num_tokens: int) -> None:
    """Raise UserError when a text with what is written into it does not fit a model with absolute positions."""
    positions = decoder.model.config.positions
    # A table may have more positions than training ever reached.
    limit = min(decoder.segment_tokens, getattr(positions, "max_positions", decoder.segment_tokens))
    if decoder.absolute and num_tokens > limit:
        raise UserError(
            f"text and new tokens make {num_tokens} tokens, and this model with {positions.kind} positions can "
            f"place {limit}: use a shorter text or ask for fewer tokens"
        )
