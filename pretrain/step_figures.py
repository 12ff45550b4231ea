"""The figures of a step: summed over the workers and read by the host, which on a GPU launches the next step first.

Shapes: F figures, W workers.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from pretrain.device_copies import PendingNumbers, on_device


@dataclass(frozen=True)
class OwnFigures:
    """What a worker contributes."""

    loss: Tensor
    """The mean over its micro-batches, on the device."""
    num_tokens: int
    digest: int
    is_stop_asked: bool
    own_s: float


@dataclass(frozen=True)
class StepFigures:
    """What the host knows after a step, the same on every worker."""

    loss: float
    """The mean over all workers."""
    grad_norm: float
    is_applied: bool
    num_tokens: int
    digest: int
    is_stop_asked: bool
    own_s_W: tuple[float, ...]


class SummedFigures:
    """The figures of all workers together, on the device; the host does not know them."""

    def __init__(self, mine: OwnFigures) -> None:
        """Add up; float64 is exact for the sum of the digests. Collective; does not wait for a GPU."""
        own_s_W = [0.0] * dist.get_world_size()
        own_s_W[dist.get_rank()] = mine.own_s
        numbers = [float(mine.num_tokens), float(mine.digest), float(mine.is_stop_asked), *own_s_W]
        loss_1 = mine.loss.to(torch.float64).view(1)
        numbers_F = on_device(torch.tensor(numbers, dtype=torch.float64), loss_1.device)
        self._sums_F = torch.cat([loss_1, numbers_F])
        dist.all_reduce(self._sums_F)

    @property
    def is_loss_finite(self) -> Tensor:
        """Whether the losses of all workers are finite, bool []."""
        return torch.isfinite(self._sums_F[0])

    def sent(self, grad_norm: Tensor, is_applied: Tensor) -> "PendingFigures":
        """Begin to copy them to the host, together with an update's result (scalar tensors)."""
        update_2 = torch.stack([grad_norm.to(torch.float64), is_applied.to(torch.float64)])
        return PendingFigures(PendingNumbers(torch.cat([update_2, self._sums_F])))


@dataclass(frozen=True)
class PendingFigures:
    """The figures of a step that a GPU may still be computing."""

    numbers: PendingNumbers

    def read(self) -> StepFigures:
        """Wait for the step: the only read of a training step."""
        grad_norm, is_applied, loss, num_tokens, digest, stops, *own_s_W = self.numbers.read()
        return StepFigures(
            loss=loss / len(own_s_W),
            grad_norm=grad_norm,
            is_applied=bool(is_applied),
            num_tokens=round(num_tokens),
            digest=round(digest),
            is_stop_asked=stops > 0,
            own_s_W=tuple(own_s_W),
        )
