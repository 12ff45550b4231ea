"""Ends a block of work that has lost something that it needs, and reports that loss instead of its consequences.

A request to stop is a KeyboardInterrupt, however it arrives. One that also ends what the block needs, as a SIGTERM to
all processes of a job does, is still reported as a request to stop.
"""

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from cluster.errors import RetryableError, UserError

_LOOK_S = 1.0
_INTERRUPT_AGAIN_S = 5.0
_MAX_END_S = 40.0
"""The most from a loss to this process's end; Ray aborts it with its own exit code 60 s after the gcs was lost."""
_EXIT_INTERRUPTED = 130

_lost_blocks: list["_Watch"] = []
_was_asked_to_stop = threading.Event()
"""Set by a SIGTERM from outside or an interrupt before any loss."""
_sigterm_received = threading.Event()


def interrupt_on_sigterm() -> None:
    """Make SIGTERM raise KeyboardInterrupt from now on.

    To be called in the main thread, and again after Ray has started: Ray's own handler would abort the process with a
    stack trace.
    """
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    if not any(watch.sends_sigterm for watch in _lost_blocks):
        _was_asked_to_stop.set()
    raise KeyboardInterrupt


def listen_for_sigterm() -> None:
    """Note SIGTERM in `sigterm_received` from now on; for the main thread of a worker process of Ray Train.

    Ray Train runs the training in another thread, and the main thread waits in C++, so a handler in Python would never
    run. Its C part does: it writes a byte to the wake-up descriptor, which a thread reads.
    """
    _sigterm_received.clear()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def read() -> None:
        while signal.SIGTERM not in os.read(reading, 64):
            pass
        _sigterm_received.set()

    threading.Thread(target=read, name="sigterm", daemon=True).start()


def sigterm_received() -> bool:
    """Return whether this process got SIGTERM, as a worker does at a preemption, since `listen_for_sigterm`."""
    return _sigterm_received.is_set()


@contextmanager
def watch_block(look: Callable[[], Exception | None], close: Callable[[], None]) -> Iterator[None]:
    """End the block within seconds when `look` returns an error (UserError or RetryableError), and raise that error.

    `look` is called every second. The main thread, in which the block must run, is interrupted repeatedly until the
    block has ended. `close` is called after the block, when `look` is not called any more. A process that does not
    reach the end of the block in time prints the error and exits. KeyboardInterrupt instead of the error when the
    process was asked to stop and the error is a RetryableError.
    """
    _was_asked_to_stop.clear()
    watch = _Watch(look)
    watch.start()
    try:
        try:
            yield
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and watch.loss is None:
                _was_asked_to_stop.set()
            watch.end(is_failure=isinstance(error, Exception) and not isinstance(error, UserError))
            raise
        finally:
            watch.end(is_failure=False)
            close()
    except BaseException as error:
        if watch.loss is None:
            raise
        if watch.was_stopped():
            raise KeyboardInterrupt from error
        raise watch.loss from error
    else:
        if watch.loss is not None:
            raise watch.loss
    finally:
        watch.is_closed.set()
        if watch in _lost_blocks:
            _lost_blocks.remove(watch)


def is_block_lost() -> bool:
    """Return whether an interrupt came from `watch_block`: then nothing is left that could be ended cleanly."""
    return bool(_lost_blocks)


class _Watch(threading.Thread):
    def __init__(self, look: Callable[[], Exception | None]) -> None:
        super().__init__(name="watch", daemon=True)
        self.loss: Exception | None = None
        self.is_closed = threading.Event()
        self.sends_sigterm = False
        self._look_now = look
        self._has_ended = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        while not self._has_ended.wait(_LOOK_S):
            self._look()
            if self.loss is not None:
                self._end_block()
                return

    def was_stopped(self) -> bool:
        """Return whether the loss came with a request to stop."""
        return isinstance(self.loss, RetryableError) and _was_asked_to_stop.is_set()

    def end(self, is_failure: bool) -> None:
        """Look for a loss one last time. After a failure wait first: it may show before the loss that caused it."""
        self._look()
        if is_failure and self.loss is None:
            time.sleep(_LOOK_S)
            self._look()
        self._has_ended.set()

    def _look(self) -> None:
        with self._lock:
            if self.loss is None and not self._has_ended.is_set():
                self.loss = self._look_now()
                if self.loss is not None:
                    _lost_blocks.append(self)

    def _end_block(self) -> None:
        deadline_s = time.monotonic() + _MAX_END_S
        while time.monotonic() < deadline_s and not self._has_ended.is_set():
            if callable(signal.getsignal(signal.SIGINT)):
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            else:  # ignored, as by commands that a shell starts in the background
                self.sends_sigterm = True
                _thread.interrupt_main(signal.SIGTERM)
            self._has_ended.wait(_INTERRUPT_AGAIN_S)
        if not self.is_closed.wait(max(0.0, deadline_s - time.monotonic())):
            if self.was_stopped():
                print("permcode: interrupted: the same command continues", file=sys.stderr, flush=True)
                os._exit(_EXIT_INTERRUPTED)
            if isinstance(self.loss, RetryableError):
                print(
                    f"permcode: failed for now ({self.loss.kind}): {self.loss}", file=sys.stderr, flush=True
                )
                os._exit(os.EX_TEMPFAIL)
            print(f"permcode: error: {self.loss}", file=sys.stderr, flush=True)
            os._exit(2)
