"""The first worker's journal: every step with the use of its seconds.

Waiting for data, computing, saving and evaluating are measured; the small rest of the seconds since the last record is
not. Workers other than the first record nothing.
"""

import os
import socket
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster import metrics_export, structured_log
from cluster.fault_points import fault_point
from cluster.heartbeat import Heartbeat, process_started_s
from cluster.journal import Journal, Level
from cluster.lease import Lease
from pretrain.files import PretrainFiles
from pretrain.journal.events import Attempt, CheckpointWritten, Ended, Event, Start, Stopped


class Recorder:
    """Writes the run's journal; `journal` None records nothing.

    With a `lease`, an attempt that has ended writes nothing more: its process ends instead.
    """

    def __init__(self, journal: Journal | None, lease: Lease | None = None) -> None:
        self._journal, self._lease = journal, lease
        self._since_s = time.time()
        self._spans_s: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def span(self, kind: str) -> Iterator[None]:
        """Add the time of the block to `kind`: "save_s" or "evaluation_s"."""
        started_s = time.perf_counter()
        try:
            yield
        finally:
            self._spans_s[kind] += time.perf_counter() - started_s

    def begin(self, text: str, start: Start) -> None:
        """Record that steps start now; the time before was start-up, or a rewind if steps were made in this process."""
        self.event(text, start)
        self._since_s = time.time()
        self._spans_s.clear()

    def event(self, text: str, event: Event | None = None, level: Level = "info") -> None:
        """Record `text` for readers and `event` for programs."""
        if self._journal is not None:
            self._check_lease()
            self._journal.event(text, level, event.name if event else "", **(event.facts() if event else {}))
            structured_log.event(text, level)
            _show_event(event)

    def step(
        self, step: int, metrics: Mapping[str, float], data_s: float, compute_s: float, **facts: Any
    ) -> None:
        """Record an optimizer step, with the metrics of an evaluation after it."""
        structured_log.at_step(step)
        metrics_export.add(metrics_export.STEPS_MADE, 1)
        metrics_export.add(metrics_export.DATA_WAIT_S, data_s)
        if self._journal is not None:
            _show_step(step, metrics)
            self._check_lease()
            self._journal.step(step, metrics, {**facts, **self._spans(data_s, compute_s)})
            fault_point("step.recorded")

    def sync(self) -> bool:
        """Sync the journal, so that no checkpoint survives a power cut without its steps; False if records wait.

        Called before each checkpoint is completed, so that only the attempt that holds the lease completes one.
        """
        self._check_lease()
        return self._journal is None or self._journal.sync()

    def end(self, text: str, event: Stopped | Ended) -> None:
        """Record the orderly end of the attempt, and the use of the time since the last step."""
        if self._journal is not None:
            self._journal.event(text, "info", event.name, **event.facts(), **self._spans(0.0, 0.0))
            structured_log.event(text)

    def close(self) -> None:
        """Close the journal; later calls record nothing."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _check_lease(self) -> None:
        if self._lease is not None:
            self._lease.check()

    def _spans(self, data_s: float, compute_s: float) -> dict[str, float]:
        """Return the measured use of the seconds since the last call."""
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


def _show_event(event: Event | None) -> None:
    match event:
        case Start():
            metrics_export.show(metrics_export.STEP, event.step)
            metrics_export.show(metrics_export.COMMITTED_STEP, event.step if event.checkpoint else 0)
            if event.num_steps is not None:
                metrics_export.show(metrics_export.NUM_STEPS, event.num_steps)
        case CheckpointWritten():
            metrics_export.show(metrics_export.COMMITTED_STEP, event.step)


def _show_step(step: int, metrics: Mapping[str, float]) -> None:
    metrics_export.show(metrics_export.STEP, step)
    for metric, name in ((metrics_export.LOSS, "loss"), (metrics_export.TOKENS_PER_S, "tokens_per_s")):
        if name in metrics:
            metrics_export.show(metric, metrics[name])


@contextmanager
def recorded_attempt(journal: Journal, folder: Path) -> Iterator[None]:
    """Record the start of an attempt, and write heartbeats to `folder` while the block runs.

    For the only writer of the run, before anything that takes time, so that an attempt that is killed early is known.
    """
    import torch

    host = socket.gethostname()
    with Heartbeat(folder / PretrainFiles.HEARTBEAT) as heartbeat:
        attempt = Attempt(
            process_started_s=process_started_s(),
            previous_beat_s=heartbeat.previous_beat_s,
            host=host,
            gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        )
        journal.event(
            f"process {os.getpid()} on {host} begins to work on the run",
            name=attempt.name,
            **attempt.facts(),
        )
        yield
