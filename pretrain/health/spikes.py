"""Loss spikes, told from noise by a robust threshold.

A loss counts as high when it lies more than `threshold` robust deviations above the median of the recent ones that
were not high; so many in a row make a spike. The deviation is 1.4826 times the median absolute deviation, which for
normal noise is its standard deviation, and which a few outliers do not move.
"""

import statistics
from dataclasses import dataclass, field
from typing import Any

_NORMAL_SCALE = 1.4826
_LEAST_DEVIATION_SHARE = 1e-3
"""Of the median: a loss that hardly moves is not a spike when it moves a little."""


@dataclass(frozen=True)
class Spike:
    """High losses of steps that follow each other, but for steps that were not applied; and what they rose from."""

    first_step: int
    last_step: int
    loss: float
    """The highest of them."""
    median: float
    deviation: float


@dataclass
class SpikeDetector:
    """Sees every loss in turn; what it remembers is a handful of numbers that go into the checkpoint."""

    window_steps: int
    threshold: float
    patience_steps: int
    recent: list[float] = field(default_factory=list)
    """The last `window_steps` losses that were not high."""
    high: list[tuple[int, float]] = field(default_factory=list)
    """The high ones since the last that was not, with their steps."""

    def see(self, step: int, loss: float) -> Spike | None:
        """The spike that `step` completes, if it does. The first half window is only learnt from."""
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
        """Whether the spike that the high losses may become goes back to `step`."""
        return bool(self.high) and self.high[0][0] <= step

    def _accept(self, loss: float) -> None:
        self.recent = [*self.recent, loss][-self.window_steps :]

    def to_json(self) -> dict[str, Any]:
        """What a resumed run needs to go on as if it had never stopped."""
        return {"recent": self.recent, "high": self.high}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `to_json` gave."""
        self.recent = list(state["recent"])
        self.high = [(int(step), float(loss)) for step, loss in state["high"]]
