"""A journal's points brought into an MLflow run, each once, whoever dies in between."""

import re
from pathlib import Path
from typing import Any

from cluster.journal import JournalTail
from cluster.lineage import Lineage, Point

_BATCH_METRICS = 1000
"""What the store takes in one call."""
_REFUSED = re.compile(r"[^\w.\-/ ]")


class JournalFeed:
    """Brings the points of a journal that count into a run, once and in order.

    The store says up to which step it has each metric, so a feed goes on where a killed one ended, and keeps what it
    was told first of a step, since nothing can be taken back there. One call is one transaction: all of a batch is
    there or nothing. A call whose answer got lost is made again with the same times and values, which the store's
    primary key takes once.
    """

    def __init__(self, client: Any, run_id: str, journal_path: Path) -> None:
        self._client = client
        self._run_id = run_id
        self._tail = JournalTail(journal_path)
        self._lineage = Lineage()
        self._unsent: list[Point] = []
        self._stored_steps: dict[str, int] | None = None
        """Of each metric; None when the store has to be asked."""

    def pump(self) -> int:
        """Send what the journal has gained; the number of values sent.

        Raises what the store raises; the next call sends what is missing.
        """
        self._lineage.take(self._tail.new_records())
        self._unsent += self._lineage.settled()
        if not self._unsent:
            return 0
        if self._stored_steps is None:
            self._stored_steps = stored_steps(self._client, self._run_id)
        stored = self._stored_steps
        unsent = [point for point in self._unsent if point.step > stored.get(metric_key(point.name), -1)]
        # Accepted changes make steps come again with other values; of those not sent yet the later value holds.
        self._unsent = list({(point.name, point.step): point for point in unsent}.values())
        try:
            return self._send(stored)
        except Exception:
            # Whether the store took the batch is not known.
            self._stored_steps = None
            raise

    def _send(self, stored: dict[str, int]) -> int:
        """Also keeps `stored` up to date."""
        from mlflow.entities import Metric

        num_sent = 0
        while self._unsent:
            batch = [
                Metric(
                    metric_key(point.name), point.value, timestamp=round(point.time_s * 1000), step=point.step
                )
                for point in self._unsent[:_BATCH_METRICS]
            ]
            self._client.log_batch(self._run_id, metrics=batch)
            stored.update((metric.key, metric.step) for metric in batch)
            del self._unsent[: len(batch)]
            num_sent += len(batch)
        return num_sent


def stored_steps(client: Any, run_id: str) -> dict[str, int]:
    """The highest step that the store has of each metric."""
    return {metric.key: metric.step for metric in client.get_run(run_id).data.to_proto().metrics}


def metric_key(name: str) -> str:
    """A metric's name as MLflow takes it; one refused name would keep back everything behind it."""
    return _REFUSED.sub("_", name)
