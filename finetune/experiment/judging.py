"""While a system is judged: how far it is, and whether somebody asked to stop."""

import time

from cluster.journal import Journal
from pretrain.health.stop import StopRequest
from pretrain.journal.events import Judging

_TELL_EVERY_S = 10.0


class Stopped(Exception):
    """Somebody asked to stop: what was judged so far is dropped, and the same command judges again."""


class Watch:
    """An `OnProgress` for the items of `what`: "the test split"."""

    def __init__(self, what: str, num_items: int, journal: Journal | None, stop: StopRequest) -> None:
        self._what, self._num_items, self._journal, self._stop = what, num_items, journal, stop
        self._told_s = time.monotonic()
        self._tell(f"judging {what}")

    def __call__(self, num_done: int) -> None:
        """Raises `Stopped` where that was asked for."""
        if self._stop.is_made():
            raise Stopped
        if time.monotonic() - self._told_s >= _TELL_EVERY_S:
            self._told_s = time.monotonic()
            self._tell(f"judging {self._what}, {num_done:,} of {self._num_items:,} items")

    def _tell(self, text: str) -> None:
        if self._journal is not None:
            self._journal.event(text, name=Judging.name, num_items=self._num_items)
