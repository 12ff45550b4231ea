"""Ends a block of work that has lost what it cannot do without, and says so instead of what came of it."""

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cluster.errors import RetryableError, UserError

_LOOK_S = 1.0
_INTERRUPT_AGAIN_S = 5.0
_MAX_END_S = 40.0
"""From a loss to the end of this process. Ray aborts it, with an exit code of its own, 60 s after its gcs was lost."""

_lost_blocks: list["_Watch"] = []


@contextmanager
def ended_by_loss(look: Callable[[], Exception | None], close: Callable[[], None]) -> Iterator[None]:
    """Raise what `look` returns, a UserError or RetryableError, instead of the block's end, within seconds.

    `look` is called every second. The main thread, which the block must run in, is interrupted, again and again until
    the block has ended; `close` is called behind the block, when `look` is not called any more. A process that does not
    come to the block's end prints the line and exits.
    """
    watch = _Watch(look)
    watch.start()
    try:
        try:
            yield
        except BaseException as error:
            watch.end(is_failure=isinstance(error, Exception) and not isinstance(error, UserError))
            raise
        finally:
            watch.end(is_failure=False)
            close()
    except BaseException as error:
        if watch.loss is None:
            raise
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
        self._look_now = look
        self._has_ended = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        while not self._has_ended.wait(_LOOK_S):
            self._look()
            if self.loss is not None:
                self._end_the_block()
                return

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
                _thread.interrupt_main(signal.SIGTERM)
            self._has_ended.wait(_INTERRUPT_AGAIN_S)
        if not self.is_closed.wait(max(0.0, deadline_s - time.monotonic())):
            may_pass = isinstance(self.loss, RetryableError)
            prefix = "failed for now" if may_pass else "error"
            print(f"permcode: {prefix}: {self.loss}", file=sys.stderr, flush=True)
            os._exit(os.EX_TEMPFAIL if may_pass else 2)
