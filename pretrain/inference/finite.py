"""Weights may be finite and yet too large to compute with."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cluster.errors import UserError


class NotFinite(UserError):
    """Weights with which nothing can be computed."""


def check_finite(numbers: Tensor | NDArray[np.floating], what: str) -> None:
    """Raise NotFinite, which says that `what` are not finite, when one of the numbers is infinite or none at all."""
    if not bool(torch.as_tensor(numbers).isfinite().all()):
        raise NotFinite(
            f"{what} are not finite: the model's weights are too large to compute with; use another checkpoint, or "
            "pretrain again"
        )
