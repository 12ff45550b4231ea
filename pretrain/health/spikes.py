"""Loss spikes, distinguished from noise by a robust threshold.

A loss is high if it is more than `threshold` robust deviations above the median of the recent losses that were not
high; `patience_steps` high losses in a row make a spike. The deviation is 1.4826 times the median absolute deviation,
which equals the standard deviation for normal noise and does not depend on a few outliers.
"""

import statistics
from dataclasses import dataclass, field
from typing import Any

_NORMAL_SCALE = 1.4826
_LEAST_DEVIATION_SHARE = 1e-3
"""The least deviation, as a share of the median: a small change of a constant loss is no spike."""


@dataclass(frozen=True)
class Spike:
    """High losses of consecutive applied steps, and the median and deviation before them."""

    first_step: int
    last_step: int
    loss: float
    """The highest of the losses."""
    median: float
    deviation: float


@dataclass
class SpikeDetector:
    """Takes every loss in turn; its state is a few numbers that are saved in the checkpoint."""

    window_steps: int
    threshold: float
    patience_steps: int
    recent: list[float] = field(default_factory=list)
    """The last `window_steps` losses that were not high."""
    high: list[tuple[int, float]] = field(default_factory=list)
    """The high losses since the last normal one, with their steps."""

    def see(self, step: int, loss: float) -> Spike | None:
        """Return the spike that `step` completes, if any. The first half window only sets the level."""
        if len(self.recent) * 2 < self.window_steps:
            self._accept(loss)
            return None
        median = statistics.median(self.recent)
        spread = statistics.median(abs(value - median) for value in self.recent)
        deviation = max(_NORMAL_SCALE * spread, _LEAST_DEVIATION_SHARE * abs(median))
        if loss <= median + self.threshold * deviation:
            self.high = []
            self._accept(loss)
            return None
        self.high.append((step, loss))
        if len(self.high) < self.patience_steps:
            return None
        spike = Spike(self.high[0][0], step, max(loss for _, loss in self.high), median, deviation)
        self.high = []
        return spike

    def covers(self, step: int) -> bool:
        """Return whether a spike would include `step` if the current high losses became one."""
        return bool(self.high) and self.high[0][0] <= step

    def _accept(self, loss: float) -> None:
        self.recent = [*self.recent, loss][-self.window_steps :]

    def to_json(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"recent": self.recent, "high": self.high}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the state from `to_json`."""
        self.recent = list(state["recent"])
        self.high = [(int(step), float(loss)) for step, loss in state["high"]]
