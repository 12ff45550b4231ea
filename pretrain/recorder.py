"""The first worker's journal: every step once, with where its seconds went.

What waited for data, computed, saved and evaluated is measured; the little that is left of the seconds since the last
record is for who adds them up. Workers but the first record nothing.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cluster.fault_points import fault_point
from cluster.journal import Journal, Level


class Recorder:
    """Writes the run's journal; `journal` None records nothing."""

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal
        self._since_s = time.time()
        self._spans_s: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def span(self, kind: str) -> Iterator[None]:
        """What the block takes goes to `kind`: "save_s" or "evaluation_s"."""
        started_s = time.perf_counter()
        try:
            yield
        finally:
            self._spans_s[kind] += time.perf_counter() - started_s

    def begin(self, text: str, is_first: bool, **facts: Any) -> None:
        """Steps start now; what came before the first in this process was start-up, before others a rewind."""
        self.event(text, name="start" if is_first else "again", **facts)
        self._since_s = time.time()
        self._spans_s.clear()

    def event(self, text: str, level: Level = "info", name: str = "", **facts: Any) -> None:
        """Something a reader of the run should know."""
        if self._journal is not None:
            self._journal.event(text, level, name, **facts)

    def step(
        self, step: int, metrics: Mapping[str, float], data_s: float, compute_s: float, **facts: Any
    ) -> None:
        """One optimizer step, with the metrics of an evaluation behind it."""
        if self._journal is not None:
            self._journal.step(step, metrics, {**facts, **self._spans(data_s, compute_s)})
            fault_point("step.recorded")

    def sync(self) -> bool:
        """A commit must never survive a power cut that the steps before it did not; False where records wait."""
        return self._journal is None or self._journal.sync()

    def end(self, text: str, name: str, **facts: Any) -> None:
        """The attempt ends in order."""
        spans: dict[str, Any] = self._spans(0.0, 0.0)
        self.event(text, name=name, **facts, **spans)

    def close(self) -> None:
        """Nothing is recorded any more."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _spans(self, data_s: float, compute_s: float) -> dict[str, float]:
        """What the seconds since the last call went to, as far as it was measured."""
        began_s, self._since_s = self._since_s, time.time()
        spans = {
            "began_s": began_s,
            "data_s": data_s,
            "compute_s": compute_s,
            "save_s": self._spans_s["save_s"],
            "evaluation_s": self._spans_s["evaluation_s"],
        }
        self._spans_s.clear()
        return spans
