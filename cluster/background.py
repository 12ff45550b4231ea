"""A function that runs in a thread, with its end and its error for the thread that waits for it."""

import threading
from collections.abc import Callable
from typing import Any


class Background:
    """Runs `work` in a daemon thread; may be started again and again, but runs once."""

    def __init__(self, work: Callable[[], Any], name: str) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._has_ended = threading.Event()
        self._was_started = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread the first time; an interrupt that comes meanwhile leaves it started."""
        if not self._was_started:
            self._was_started = True
            self._thread.start()

    def has_ended(self) -> bool:
        """Return whether `work` has returned or raised."""
        return self._has_ended.is_set()

    def end(self) -> None:
        """Raise what `work` has raised."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error
        finally:
            self._has_ended.set()
