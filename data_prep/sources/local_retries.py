"""Retries of local reads that fail for temporary reasons, before a file is dropped for them."""

import errno
import io
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

# The process or machine is short of a resource, or a disk or network mount fails for a moment.
_TEMPORARY = frozenset(
    {
        errno.EMFILE, errno.ENFILE, errno.EIO, errno.ESTALE, errno.ENOMEM, errno.ETIMEDOUT, errno.EAGAIN,
        errno.EBUSY, errno.EINTR,
    }
)  # fmt: skip
_PAUSES_S = (0.05, 0.2, 0.75)
# A dead disk full of small files would cost a second per file: after so many seconds in vain there are no retries.
_MAX_WASTED_PAUSES_S = 120.0
wasted_pauses_s = 0.0


def retry_local(call: Callable[[], T]) -> T:
    """Return `call()`; a temporary OSError is raised only after retries for a second."""
    try:
        return call()
    except OSError as error:
        if error.errno not in _TEMPORARY or wasted_pauses_s >= _MAX_WASTED_PAUSES_S:
            raise
    return _retry_with_pauses(call)


def _retry_with_pauses(call: Callable[[], T]) -> T:
    global wasted_pauses_s
    for pause_s in _PAUSES_S[:-1]:
        time.sleep(pause_s)
        try:
            return call()
        except OSError as error:
            if error.errno not in _TEMPORARY:
                raise
    time.sleep(_PAUSES_S[-1])
    try:
        return call()
    except OSError:
        wasted_pauses_s += sum(_PAUSES_S)
        raise


class RetryingFile(io.FileIO):
    """A raw local file whose reads are retried; a read that fails does not move the position."""

    def read(self, size: int | None = -1, /) -> Any:
        if size is None or size < 0:
            return self.readall()
        return retry_local(lambda: io.FileIO.read(self, size))

    def readinto(self, buffer: Any, /) -> Any:
        return retry_local(lambda: io.FileIO.readinto(self, buffer))

    def readall(self) -> bytes:
        # In pieces, because FileIO.readall loses what it read before a failure.
        return b"".join(iter(lambda: self.read(1 << 20), b""))
