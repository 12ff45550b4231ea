"""Local reads that the system refuses for reasons that pass are tried again before they cost a file."""

import errno
import io
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

# The process or machine is short of something, or a disk or network mount stumbles.
_PASSING = frozenset(
    {
        errno.EMFILE, errno.ENFILE, errno.EIO, errno.ESTALE, errno.ENOMEM, errno.ETIMEDOUT, errno.EAGAIN,
        errno.EBUSY, errno.EINTR,
    }
)  # fmt: skip
_PAUSES_S = (0.05, 0.2, 0.75)
# A dead disk full of small files would hold a process a second for each: some files are waited for, then none.
_MAX_VAIN_PAUSES_S = 120.0
_vain_pauses_s = 0.0


def patiently(call: Callable[[], T]) -> T:
    """The value of `call()`; an OSError that may pass is raised only after it stayed for a second."""
    try:
        return call()
    except OSError as error:
        if error.errno not in _PASSING or _vain_pauses_s >= _MAX_VAIN_PAUSES_S:
            raise
    return _tried_again(call)


def _tried_again(call: Callable[[], T]) -> T:
    global _vain_pauses_s
    for pause_s in _PAUSES_S[:-1]:
        time.sleep(pause_s)
        try:
            return call()
        except OSError as error:
            if error.errno not in _PASSING:
                raise
    time.sleep(_PAUSES_S[-1])
    try:
        return call()
    except OSError:
        _vain_pauses_s += sum(_PAUSES_S)
        raise


class PatientFile(io.FileIO):
    """A raw local file whose reads are patient; a read that fails leaves the position where it was."""

    def read(self, size: int | None = -1, /) -> Any:
        if size is None or size < 0:
            return self.readall()
        return patiently(lambda: io.FileIO.read(self, size))

    def readinto(self, buffer: Any, /) -> Any:
        return patiently(lambda: io.FileIO.readinto(self, buffer))

    def readall(self) -> bytes:
        # In pieces, because FileIO's own forgets what it read before the failure.
        return b"".join(iter(lambda: self.read(1 << 20), b""))
