"""Whether texts fit a pretrained network's positions."""

from cluster.errors import UserError
from pretrain.model.config import AbsoluteLearnedPositions
from pretrain.weights import ModelDescription


def check_extent(description: ModelDescription, needed_tokens: int, limits: str) -> None:
    """UserError where absolute positions do not reach `needed_tokens` far; `limits` names what asks for them.

    Relative positions reach any distance.
    """
    positions = description.config.positions
    if not positions.kind.startswith("absolute"):
        return
    # Beyond the segments it was trained on, an absolute position is one the network has never seen.
    there = description.segment_tokens
    if isinstance(positions, AbsoluteLearnedPositions):
        there = min(there, positions.max_positions)
    if needed_tokens > there:
        raise UserError(
            f"{limits} need {needed_tokens} positions, and this model with {positions.kind} positions has {there}: "
            "lower them, or use a model with relative positions"
        )
