"""Stragglers: the workers' own times per step, compared at intervals.

A worker's own time is the time before it first waits for the others: reading its batch and the forward passes. A
whole step takes all workers as long as the slowest, so it cannot show which worker is slow.

Shapes: W workers.
"""

import statistics
from dataclasses import dataclass

from cluster.journal import Level
from pretrain.journal.events import Stragglers
from pretrain.journal.recorder import Recorder

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


class OwnTime:
    """Collects the workers' own seconds per step, which come with every step's figures, and compares them."""

    def __init__(self, every_steps: int, recorder: Recorder) -> None:
        """Compare after every `every_steps` steps, and record it."""
        self._every_steps, self._recorder = every_steps, recorder
        self._steps: list[tuple[float, ...]] = []
        """Of every step since the last comparison, the seconds by rank."""

    def add(self, step: int, own_s_W: tuple[float, ...]) -> None:
        """Add the own times of a step, and record a comparison if it is due."""
        if len(own_s_W) == 1:
            return
        self._steps.append(own_s_W)
        if step % self._every_steps:
            return
        times = self.compare()
        lagging = times.laggards()
        text = "workers' own seconds per step: " + ", ".join(f"{own_s:.3f}" for own_s in times.seconds_W)
        if lagging:
            text += f"; lagging: worker {', '.join(map(str, lagging))}"
        level: Level = "warning" if lagging else "info"
        self._recorder.event(text, Stragglers(own_s=times.seconds_W, lagging=lagging), level)

    def compare(self) -> OwnTimes:
        """Return the workers' medians since the last comparison."""
        medians_W = tuple(statistics.median(own_s) for own_s in zip(*self._steps, strict=True))
        self._steps = []
        return OwnTimes(medians_W)
