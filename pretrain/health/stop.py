"""Requests to stop a run after the step in progress: a signal to a worker, or a file in the run's folder.

Ray's workers get no signal when the command that started them is stopped; that command makes the file.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from cluster.reporter import Reporter
from cluster.watch import is_block_lost
from pretrain.files import PretrainFiles

_WAIT_S = 0.5


class StopRequest:
    """A request to this worker to stop; cheap enough to check in every step."""

    def __init__(
        self, folder: Path, looks_for_file: bool, is_terminated: Callable[[], bool] = lambda: False
    ) -> None:
        self._files = [folder / PretrainFiles.STOP, folder / PretrainFiles.HANDOVER]
        self._is_terminated = is_terminated
        self._looks_for_file = looks_for_file
        self._was_signalled = False

    def is_made(self) -> bool:
        """Return whether a stop was requested, by a signal or by a file, which one worker checks for all."""
        if self._is_terminated() and not self._was_signalled:
            self._was_signalled = True
            self._files[1].touch()  # the command starts the workers again
        return self._was_signalled or (self._looks_for_file and any(path.exists() for path in self._files))

    def signalled(self, _signal: int, _frame: FrameType | None) -> None:
        """Handle the signal."""
        self._was_signalled = True


@contextmanager
def stop_requests(
    folder: Path, looks_for_file: bool, is_terminated: Callable[[], bool] = lambda: False
) -> Iterator[StopRequest]:
    """Listen until the block ends; SIGTERM is handled if this is the process's main thread, as Python requires.

    `is_terminated` returns whether SIGTERM came in another way, as to a worker of Ray: then only this worker is asked
    to end, and the command starts the workers again.
    """
    request = StopRequest(folder, looks_for_file, is_terminated)
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = signal.signal(signal.SIGTERM, request.signalled)
    try:
        yield request
    finally:
        signal.signal(signal.SIGTERM, before)


def wait_or_stop(has_ended: Callable[[], bool], request_stop: Callable[[], None]) -> None:
    """Call `has_ended` every half a second until it returns true; to be called in the main thread.

    The first KeyboardInterrupt (Ctrl-C, SIGTERM) calls `request_stop`, and waiting goes on; the second one is raised.
    """
    was_asked = False
    while True:
        try:
            while not has_ended():
                time.sleep(_WAIT_S)
            return
        except KeyboardInterrupt:
            if was_asked or is_block_lost():
                raise
            was_asked = True
            request_stop()


def request_stop(folders: Iterable[Path], reporter: Reporter) -> None:
    """Ask the workers of these folders to end after the step in progress, with a checkpoint."""
    try:
        for folder in folders:
            (folder / PretrainFiles.STOP).touch()
    except OSError as error:
        reporter.warn(
            f"cannot ask the workers to stop ({error.strerror}): interrupt again to stop them at once"
        )
        return
    reporter.warn("stopping after this step, with a checkpoint; interrupt again to stop at once")
