"""Ends a block of work that has lost what it cannot do without, and says so instead of what came of it.

A request to stop is a KeyboardInterrupt, however it comes. One that ends what the block needs as well, as a SIGTERM to
all processes of a job does, stays a request to stop.
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
"""From a loss to the end of this process. Ray aborts it, with an exit code of its own, 60 s after its gcs was lost."""
_EXIT_INTERRUPTED = 130

_lost_blocks: list["_Watch"] = []
_was_asked_to_stop = threading.Event()
"""By a SIGTERM that came from outside."""


def interrupt_on_sigterm() -> None:
    """From now on SIGTERM raises KeyboardInterrupt; to be called in the main thread, and again after Ray has
    started: its own handler would abort the process with a stack trace."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    if not any(watch.sends_sigterm for watch in _lost_blocks):
        _was_asked_to_stop.set()
    raise KeyboardInterrupt


@contextmanager
def ended_by_loss(look: Callable[[], Exception | None], close: Callable[[], None]) -> Iterator[None]:
    """Raise what `look` returns, a UserError or RetryableError, instead of the block's end, within seconds.

    `look` is called every second. The main thread, which the block must run in, is interrupted, again and again until
    the block has ended; `close` is called behind the block, when `look` is not called any more. A process that does not
    come to the block's end prints the line and exits. KeyboardInterrupt where the process was asked to stop and the
    loss is one that may pass.
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
    """Whether an interrupt came from `ended_by_loss`: nothing is left then that could end in good order."""
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
                self._end_the_block()
                return

    def was_stopped(self) -> bool:
        """Whether the loss came with a request to stop."""
        return isinstance(self.loss, RetryableError) and _was_asked_to_stop.is_set()

    def end(self, is_failure: bool) -> None:
        """Look for the last time. A failure may be heard of before the loss behind it."""
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

    def _end_the_block(self) -> None:
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
            may_pass = isinstance(self.loss, RetryableError)
            prefix = "failed for now" if may_pass else "error"
            print(f"permcode: {prefix}: {self.loss}", file=sys.stderr, flush=True)
            os._exit(os.EX_TEMPFAIL if may_pass else 2)
