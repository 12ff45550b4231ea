"""Absolute positions, added to the input of both streams.

Shapes: B lanes, X positions, D model.
"""

import torch
from torch import Tensor, nn

from cluster.errors import UserError
from pretrain.model.positions.transformer_xl import sinusoids


class InputPositions(nn.Module):
    """What an encoding adds to the input; the base class adds nothing."""

    def vectors(self, position_BX: Tensor, extent: int) -> Tensor | None:
        """A vector [B, X, D] for each position, or None."""
        return None


class SinusoidalInput(InputPositions):
    """Sines, then cosines, of the position (Vaswani et al. 2017, section 3.5)."""

    def __init__(self, model_dim: int) -> None:
        super().__init__()
        self.model_dim = model_dim

    def vectors(self, position_BX: Tensor, extent: int) -> Tensor:
        """Fixed, of size 1 per element."""
        return sinusoids(position_BX, self.model_dim)


class LearnedInput(InputPositions):
    """A vector per position; there are `max_positions` of them."""

    def __init__(self, model_dim: int, max_positions: int) -> None:
        super().__init__()
        self.position_XD = nn.Parameter(torch.empty(max_positions, model_dim))

    def vectors(self, position_BX: Tensor, extent: int) -> Tensor:
        """Raises UserError for a text longer than the model has positions."""
        if extent > len(self.position_XD):
            raise UserError(
                f"a text of {extent} tokens is longer than the {len(self.position_XD)} positions of this model "
                "(model.positions.max_positions): use shorter text"
            )
        return self.position_XD[position_BX]
