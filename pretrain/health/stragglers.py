"""Stragglers: the workers' own times per step, compared at intervals.

A worker's own time is the time before it first waits for the others: reading its batch and the forward passes. A
whole step takes all workers as long as the slowest, so it cannot show which worker is slow.
"""

import statistics
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

_LAGS_FROM = 1.3
"""The factor above the median of all workers from which a worker is slow."""


@dataclass(frozen=True)
class OwnTimes:
    """The median own seconds per step of every worker, by rank."""

    seconds_W: tuple[float, ...]

    def laggards(self) -> list[int]:
        """Return the ranks that take much longer than the median."""
        middle_s = statistics.median(self.seconds_W)
        return [rank for rank, own_s in enumerate(self.seconds_W) if own_s > _LAGS_FROM * middle_s]


@dataclass
class OwnTime:
    """Collects this worker's own seconds per step."""

    device: torch.device
    seconds: list[float] = field(default_factory=list)

    def add(self, own_s: float) -> None:
        """Add the own time of a step."""
        self.seconds.append(own_s)

    def compare(self) -> OwnTimes:
        """Return all workers' medians since the last comparison; collective."""
        mine = torch.tensor([statistics.median(self.seconds)], dtype=torch.float64, device=self.device)
        self.seconds = []
        all_W = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(all_W, mine)
        return OwnTimes(tuple(float(own) for own in all_W))
