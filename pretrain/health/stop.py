"""Requests to stop a run after the step in progress: a signal to a worker, or a file in the run's folder.

Ray's workers get no signal when the command that started them is stopped; that command makes the file.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

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


def run_until_done_or_stopped(
    fit: Callable[[], Any], stop_file: Path, reporter: Reporter, look: Callable[[], None] = lambda: None
) -> None:
    """Run `fit`, which waits for the workers; to be called in the main thread. `look` is called every half a second.

    The first KeyboardInterrupt (Ctrl-C, SIGTERM) makes the stop file and waits on; the second one is raised.
    """
    errors: list[BaseException] = []
    has_ended = threading.Event()

    def work() -> None:
        try:
            fit()
        except BaseException as error:
            errors.append(error)
        finally:
            has_ended.set()

    # In the main thread Ray would handle Ctrl-C and end the workers without a checkpoint.
    thread = threading.Thread(target=work, name="fit", daemon=True)
    was_started = was_asked = False
    while True:
        try:
            if not was_started:
                was_started = True
                # Waits for the thread's first instruction, so an interrupt may come here too.
                thread.start()
            while not has_ended.wait(_WAIT_S):
                look()
            break
        except KeyboardInterrupt:
            if was_asked or is_block_lost():
                raise
            was_asked = True
            _request_stop(stop_file, reporter)
    if errors:
        raise errors[0]


def _request_stop(stop_file: Path, reporter: Reporter) -> None:
    try:
        stop_file.touch()
    except OSError as error:
        reporter.warn(
            f"cannot ask the workers to stop ({error.strerror}): interrupt again to stop them at once"
        )
        return
    reporter.warn("stopping after this step, with a checkpoint; interrupt again to stop at once")
