"""A check of results for weights that are finite but too large to compute with."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cluster.errors import UserError


class NotFinite(UserError):
    """A model's results are not finite."""


def check_finite(numbers: Tensor | NDArray[np.floating], what: str) -> None:
    """Raise NotFinite with the message that `what` are not finite if a number is infinite or NaN."""
    if not bool(torch.as_tensor(numbers).isfinite().all()):
        raise NotFinite(
            f"{what} are not finite: the model's weights are too large to compute with; use another checkpoint, or "
            "pretrain again"
        )
