"""Reading bytes of local and remote files; remote reads are retried."""

import errno
import io
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO, TypeVar, cast

from cluster.errors import RetryableError, UserError, first_line
from data_prep.sources.local_retries import RetryingFile, retry_local

T = TypeVar("T")

MAX_TRIES = 6
FIRST_PAUSE_S = 0.25
"""Doubled after each try: 8 s in all before a read fails."""


def is_remote(location: str) -> bool:
    """Return whether the location is opened through fsspec; file:// URLs are local paths."""
    return "://" in location and not location.startswith(("file://", "local://"))


def local_path(location: str) -> str:
    """Return the absolute path of a local location. UserError if `~NAME` names no user."""
    path = location.split("://", 1)[1] if "://" in location else location
    path = os.path.expanduser(path)
    if path.startswith("~"):
        raise UserError(f"corpus path {location}: there is no such user")
    return os.path.abspath(path)


def filesystem(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL, and the URL's path in it. UserError if fsspec has none."""
    import fsspec

    try:
        return cast(tuple[Any, str], fsspec.core.url_to_fs(url))
    except (ImportError, ValueError) as error:
        raise UserError(f"source {url} cannot be opened ({first_line(error)})") from error


def open_regular(path: str) -> BinaryIO:
    """Open a local file unbuffered; its reads are retried.

    OSError (EINVAL) if it is not a regular file; opening never blocks.
    """
    # Without O_NONBLOCK, a FIFO that replaced the file since it was listed would block for ever.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = retry_local(lambda: os.open(path, flags))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        return cast(BinaryIO, RetryingFile(descriptor, "rb"))
    except BaseException:
        os.close(descriptor)
        raise


def open_location(location: str, *, seekable: bool = True) -> BinaryIO:
    """Open a local path or URL unbuffered. Links are followed, because the user named the file."""
    if is_remote(location):
        return cast(BinaryIO, RetryingReader(location, seekable=seekable))
    return open_regular(os.path.realpath(location))


def retry_remote(what: str, call: Callable[[], T]) -> T:
    """Return `call()`, retried with growing pauses while it fails with transient errors.

    Any other error is raised unchanged (an HTTP status as an OSError). RetryableError after MAX_TRIES.
    """
    for tries in range(1, MAX_TRIES + 1):
        try:
            return call()
        except Exception as error:
            if not is_transient(error):
                status = getattr(error, "status", None)
                if isinstance(status, int):  # aiohttp's error, which is no OSError
                    number = errno.EACCES if status in (401, 403) else errno.EIO
                    raise OSError(number, f"HTTP status {status}") from error
                raise
            if tries == MAX_TRIES:
                raise RetryableError(
                    f"{what} cannot be read after {MAX_TRIES} tries ({first_line(error)}): "
                    "check the connection and run the same command again",
                    "network",
                ) from error
        time.sleep(FIRST_PAUSE_S * 2 ** (tries - 1))
    raise AssertionError("unreachable")


def is_transient(error: Exception) -> bool:
    """Return whether a retry may help: a broken connection, a time-out, a server that is overloaded or down."""
    if isinstance(error, UserError | FileNotFoundError | PermissionError | IsADirectoryError):
        return False
    status = getattr(error, "status", None)  # aiohttp.ClientResponseError
    if isinstance(status, int):
        return status >= 500 or status in (408, 425, 429)
    if isinstance(error, OSError | TimeoutError):
        return True
    return type(error).__module__.split(".")[0] in ("aiohttp", "botocore", "aiobotocore", "asyncio")


class RetryingReader(io.RawIOBase):
    """A remote file that is reopened at the same position when the connection breaks.

    From a server without range requests, the file is read again from the beginning up to that position.
    """

    def __init__(self, url: str, *, seekable: bool) -> None:
        self._url = url
        self._seekable = seekable
        self._position = 0
        self._file: Any = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._seekable

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if not self._seekable:
            raise io.UnsupportedOperation("seek")
        if whence == os.SEEK_END:
            offset += retry_remote(self._url, lambda: int(self._open().size))
        elif whence == os.SEEK_CUR:
            offset += self._position
        self._position = offset
        return offset

    def readinto(self, buffer: Any) -> int:
        data = retry_remote(self._url, lambda: self._read(len(buffer)))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        self._drop()
        super().close()

    def _read(self, num_bytes: int) -> bytes:
        try:
            file = self._open()
            if self._seekable and file.tell() != self._position:
                file.seek(self._position)
            return cast(bytes, file.read(num_bytes))
        except Exception:
            self._drop()
            raise

    def _open(self) -> Any:
        if self._file is None:
            system, path = filesystem(self._url)
            if self._seekable:
                self._file = system.open(path, "rb")
            else:
                # No block size: http then answers with a stream.
                self._file = system.open(path, "rb", block_size=0)
                self._skip(self._position)
        return self._file

    def _skip(self, num_bytes: int) -> None:
        while num_bytes > 0:
            data = self._file.read(min(num_bytes, 1 << 20))
            if not data:
                raise OSError(errno.EIO, "shorter than at the first read", self._url)
            num_bytes -= len(data)

    def _drop(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(Exception):
                file.close()
