"""What a second of a run's wall time can have been."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """Seconds by what they were spent on; every second of a run is in exactly one of these."""

    startup_s: float = 0.0
    """From a process's beginning to its first step."""
    data_s: float = 0.0
    """Waiting for a batch."""
    compute_s: float = 0.0
    """Steps that count."""
    save_s: float = 0.0
    """Steps waiting for a checkpoint."""
    evaluation_s: float = 0.0
    lost_s: float = 0.0
    """Work that a kill or a rewind threw away, and the second making of steps that were made before."""
    down_s: float = 0.0
    """No process of the run lived, or it had ended its work."""

    @property
    def total_s(self) -> float:
        """All parts together."""
        return sum(self.by_name().values())

    def by_name(self) -> dict[str, float]:
        """The parts by their field's name, in this order."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def sum_of(parts: Iterable[Parts]) -> Parts:
    """The parts of several spans together."""
    spans = list(parts)
    return Parts(**{field.name: sum(getattr(span, field.name) for span in spans) for field in fields(Parts)})


LABELS = {
    "startup_s": "start-up",
    "data_s": "data wait",
    "compute_s": "compute",
    "save_s": "save stall",
    "evaluation_s": "evaluation",
    "lost_s": "lost work re-done",
    "down_s": "down",
}
"""How the parts are called where people read them."""


@dataclass(frozen=True)
class Goodput:
    """The wall time of a run from the first process's beginning on, over all restarts."""

    parts: Parts
    wall_s: float
    """Measured by itself, from the first beginning to the end; `parts` add up to it."""
    num_attempts: int
    unexplained_s: float
    """By how much the records' own measurements miss the times between them; it is in compute."""

    @property
    def share(self) -> float:
        """Goodput: compute as a share of all; 0 before the first second."""
        return self.shares()["compute_s"]

    def shares(self) -> dict[str, float]:
        """Each part as a share of the whole; all 0 before the first second."""
        whole_s = self.wall_s or 1.0
        return {name: seconds / whole_s for name, seconds in self.parts.by_name().items()}

    def summary(self) -> dict[str, Any]:
        """For the record of a finished stage."""
        return {
            "share": self.share,
            "wall_s": self.wall_s,
            "num_attempts": self.num_attempts,
            "unexplained_s": self.unexplained_s,
            "seconds": self.parts.by_name(),
        }
