"""Access to the bytes of a prepared folder, on a file system or through fsspec."""

import errno
import os
from collections.abc import Hashable
from pathlib import Path
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError, first_line
from data_prep.sources.local_retries import retry_local
from data_prep.sources.remote import filesystem, is_remote, local_path, retry_remote

_MAX_CONNECTIONS = 16


class PreparedFiles(Protocol):
    """The files of one prepared folder; `advice` says what to do when one of them is missing or damaged."""

    location: str
    advice: str
    num_readers: int
    """The number of threads that can usefully read at once."""
    num_tries: int
    """How often a range is read before a wrong checksum is an error."""

    def read(self, name: str) -> bytes:
        """Read a small file completely. FileNotFoundError when there is none."""
        ...

    def read_range(self, name: str, offset: int, num_bytes: int, file_bytes: int) -> NDArray[np.uint8]:
        """Read `num_bytes` at `offset`. FileNotFoundError when the file is missing or has not `file_bytes` bytes."""
        ...

    def mark(self, name: str) -> Hashable:
        """Return a value that changes with the file, if that could change what `read_range` has returned."""
        ...


class LocalFiles:
    """A folder on a local or mounted file system; ranges are mapped, not copied."""

    num_readers = 2
    num_tries = 1

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.location = str(folder)
        self.advice = f"remove {folder} and run prep again"

    def read(self, name: str) -> bytes:
        try:
            return retry_local(lambda: (self.folder / name).read_bytes())
        except NotADirectoryError as error:
            raise FileNotFoundError(*error.args) from error

    def read_range(self, name: str, offset: int, num_bytes: int, file_bytes: int) -> NDArray[np.uint8]:
        path = self.folder / name
        # Reading a mapping beyond the file's end would kill the process.
        if not path.is_file() or retry_local(path.stat).st_size != file_bytes:
            raise FileNotFoundError(errno.ENOENT, "missing or cut short", str(path))
        mapped = retry_local(lambda: np.memmap(path, np.uint8, "r", offset, (num_bytes,)))
        return mapped.view(np.ndarray)  # slicing a memmap is slow

    def mark(self, name: str) -> Hashable:
        try:
            status = retry_local(lambda: os.stat(f"{self.location}/{name}"))
        except OSError as error:
            return error.errno
        return status.st_ino, status.st_size, status.st_mtime_ns


class RemoteFiles:
    """A folder at a URL; every read is one request, which is retried after transient errors."""

    num_readers = _MAX_CONNECTIONS
    num_tries = 2

    def __init__(self, url: str) -> None:
        self.location = url.rstrip("/")
        self.advice = f"copy the finished prep folder to {self.location} again"

    def read(self, name: str) -> bytes:
        return self._fetch(name, None, None)

    def read_range(self, name: str, offset: int, num_bytes: int, file_bytes: int) -> NDArray[np.uint8]:
        data = self._fetch(name, offset, offset + num_bytes)
        if len(data) > num_bytes:
            raise UserError(
                f"{self.location}/{name}: its server sends complete files only, not ranges: "
                "use another server, or a local copy"
            )
        if len(data) < num_bytes:
            raise FileNotFoundError(errno.ENOENT, "missing or cut short", f"{self.location}/{name}")
        return np.frombuffer(data, np.uint8)

    def mark(self, name: str) -> Hashable:
        return None  # what was read is a copy that does not change

    def _fetch(self, name: str, start: int | None, end: int | None) -> bytes:
        url = f"{self.location}/{name}"
        system, path = filesystem(url)
        try:
            return retry_remote(url, lambda: cast(bytes, system.cat_file(path, start=start, end=end)))
        except (FileNotFoundError, UserError):
            raise
        except Exception as error:
            raise _unreadable(url, error) from error


def _unreadable(url: str, error: Exception) -> UserError:
    return UserError(
        f"{url} cannot be read ({type(error).__name__}: {first_line(error)}): check the address and your permissions"
    )


def files_at(location: str | Path) -> PreparedFiles:
    """Return the files of a prepared folder, given as a path or a URL."""
    text = os.fspath(location)
    if is_remote(text):
        return RemoteFiles(text)
    return LocalFiles(location if isinstance(location, Path) else Path(local_path(text)))
