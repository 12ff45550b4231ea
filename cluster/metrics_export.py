"""Our own metrics at Ray's Prometheus endpoint, where they are called `ray_permcode_...`.

Every metric has the tags run, stage, job and system of `structured_log.Place`; Ray adds the node and the process.
Ray 2.60 forgets a gauge that was not set for two of its report intervals, so that nothing stays of a process that has
ended. Here a thread sets the gauges again, as long as the process is at the same place: in the same stage and system.
Nothing happens, and Ray is not imported, in a process that has no Ray session, or whose Ray collects no metrics, as
the one that a command starts on its own machine.
"""

import math
import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any, Literal

from cluster import structured_log
from cluster.errors import first_line

_TAGS = ("run", "stage", "job", "system")
_COLLECTION_VARIABLE = "RAY_enable_metrics_collection"
_MAX_TAG_CHARS = 500
_INTERVAL_VARIABLE, _INTERVAL_MS = "RAY_metrics_report_interval_ms", 10_000


@dataclass(frozen=True)
class Metric:
    """A metric as Prometheus knows it, but without Ray's prefix."""

    name: str
    description: str
    kind: Literal["gauge", "counter"] = "gauge"

    @property
    def exposed_name(self) -> str:
        """The name at Ray's endpoint."""
        return f"ray_{self.name}" + ("_total" if self.kind == "counter" else "")


TOKENS_PER_S = Metric(
    "permcode_tokens_per_second", "Tokens of the newest step per second, all workers together."
)
LOSS = Metric("permcode_loss", "Loss of the newest step.")
STEP = Metric("permcode_step", "The newest step.")
NUM_STEPS = Metric("permcode_num_steps", "The step at which the training ends.")
COMMITTED_STEP = Metric("permcode_committed_step", "The step of the newest checkpoint.")
DATA_WAIT_S = Metric(
    "permcode_data_wait_seconds", "Seconds that this worker waited for data.", kind="counter"
)
STEPS_MADE = Metric("permcode_steps_made", "Steps that this process made, repeated ones too.", kind="counter")
GOODPUT = Metric("permcode_goodput", "Share of all time since the first start in steps that count, 0 to 1.")
ATTEMPT = Metric(
    "permcode_attempt", "Number of the attempt: how often workers were started in the stage's folder."
)
WORKERS = Metric("permcode_workers", "Number of workers of the attempt; 0 while it waits for room.")
LOST_NODES = Metric(
    "permcode_lost_nodes", "Nodes that this command has seen lost and that have not come back."
)
QUEUE_DONE = Metric("permcode_queue_done", "Tasks of the running part of prep that are done.")
QUEUE_LEFT = Metric("permcode_queue_left", "Tasks of the running part of prep that are not done.")
METRICS = (
    *(
        TOKENS_PER_S,
        LOSS,
        STEP,
        NUM_STEPS,
        COMMITTED_STEP,
        DATA_WAIT_S,
        STEPS_MADE,
        GOODPUT,
        ATTEMPT,
        WORKERS,
    ),
    *(LOST_NODES, QUEUE_DONE, QUEUE_LEFT),
)


class _Exporter:
    """Ray's metric objects of this process."""

    def __init__(self) -> None:
        self._made: dict[Metric, Any] = {}
        self._gauges: dict[Metric, tuple[float, dict[str, str]]] = {}
        """The newest value of each gauge and its tags."""
        self._lock = threading.Lock()
        self._has_failed = False

    def record(self, metric: Metric, value: float) -> None:
        if not is_collected() or not math.isfinite(value):
            return
        with self._lock:
            self._record(metric, value, _tags())

    def refresh(self) -> None:
        """Set the gauges again that were set at the place where the process still is."""
        if not is_collected():
            return
        with self._lock:
            tags = _tags()
            for metric, (value, tags_then) in list(self._gauges.items()):
                if tags_then == tags:
                    self._record(metric, value, tags)

    def _record(self, metric: Metric, value: float, tags: dict[str, str]) -> None:
        if self._has_failed:
            return
        try:
            if not self._made:
                threading.Thread(target=self._refresh_always, name="metrics", daemon=True).start()
            if metric not in self._made:
                self._made[metric] = _make(metric)
            if metric.kind == "gauge":
                self._gauges[metric] = value, tags
                self._made[metric].set(value, tags=tags)
            elif value > 0:
                self._made[metric].inc(value, tags=tags)
        except Exception as error:  # whatever is wrong with Ray's metrics, it must not end a training
            self._has_failed = True
            structured_log.event(f"metrics are no longer exported: {first_line(error)}", "warning")

    def _refresh_always(self) -> None:
        interval_s = float(os.environ.get(_INTERVAL_VARIABLE, _INTERVAL_MS)) / 1000
        while not self._has_failed:
            time.sleep(max(0.5, interval_s / 2))
            self.refresh()


_exporter = _Exporter()


def show(metric: Metric, value: float) -> None:
    """Set a gauge. A value that is not finite is left out."""
    _exporter.record(metric, value)


def add(metric: Metric, value: float) -> None:
    """Raise a counter."""
    _exporter.record(metric, value)


def is_collected() -> bool:
    """Return whether metrics of this process reach anybody."""
    ray = sys.modules.get("ray")
    if ray is None or os.environ.get(_COLLECTION_VARIABLE, "1").lower() in ("0", "false"):
        return False
    return bool(ray.is_initialized())


def _make(metric: Metric) -> Any:
    from ray.util import metrics

    kind = metrics.Gauge if metric.kind == "gauge" else metrics.Counter
    return kind(metric.name, description=metric.description, tag_keys=_TAGS)


def _tags() -> dict[str, str]:
    place = structured_log.place()
    return {name: str(getattr(place, name))[-_MAX_TAG_CHARS:] for name in _TAGS}
