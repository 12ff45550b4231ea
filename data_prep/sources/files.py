"""The files at a source's locations."""

import glob
import io
import os
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, cast

from cluster.errors import UserError, first_line
from data_prep.documents import Rejection
from data_prep.sources.listed import unreadable
from data_prep.sources.local_retries import retry_local
from data_prep.sources.remote import filesystem, is_remote, local_path, open_location, retry_remote
from data_prep.sources.units import printable, rejection_key

_GLOB_CHARACTERS = frozenset("*?[")
_BUFFER_BYTES = 1 << 18
MAX_HELD_BYTES = 128 << 20
_FOLDER = "folder"
_KINDS = {
    stat.S_IFDIR: _FOLDER,
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}
_MARKS = ("ETag", "etag", "Content-MD5", "Digest", "Last-Modified", "LastModified", "mtime", "created")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that contains files: an archive or a table.

    `label` is printable, unique in its source and the same on every machine. `mark` changes with the content: a time,
    an ETag. `num_bytes` is None if a server does not report it. `rejection` is set for a match of a pattern that must
    not be opened.
    """

    location: str
    label: str
    num_bytes: int | None
    mark: str
    seekable: bool = True
    rejection: Rejection | None = None

    def open(self, *, sequential: bool = False) -> BinaryIO:
        """Open the file unbuffered; `sequential` readers never seek."""
        return open_location(self.location, seekable=self.seekable and not sequential)

    def open_seekable(self) -> BinaryIO:
        """Open the file buffered and seekable. UserError for a large file of a server without range requests."""
        if self.seekable:
            return io.BufferedReader(cast(io.RawIOBase, self.open()), _BUFFER_BYTES)
        if self.num_bytes is None or self.num_bytes > MAX_HELD_BYTES:
            raise UserError(
                f"source {self.location}: its server sends complete files only, and this kind of file is read in "
                "ranges: download it, and name the local copy"
            )
        with self.open() as file:
            return io.BytesIO(b"".join(iter(lambda: file.read(_BUFFER_BYTES), b"")))

    @property
    def version(self) -> list[object]:
        """Values that change with the content, for signatures."""
        return [self.num_bytes, self.mark, rejection_key(self.rejection)]

    @property
    def basename(self) -> str:
        return self.label.rpartition("/")[2]


def find_files(locations: Sequence[str]) -> list[SourceFile]:
    """Return all files at the locations, once each, ordered by label. UserError for a location without a file.

    Other matches of a pattern (a folder, a FIFO, a broken link) are returned with their `rejection`, except folders
    that `**` passes through.
    """
    found: dict[str, SourceFile] = {}
    for location in locations:
        matches = _remote_matches(location) if is_remote(location) else _local_matches(location)
        if all(match.rejection for match in matches):
            others = f" ({len(matches)} matches are not files that can be opened)" if matches else ""
            raise UserError(f"source {location}: there is no such file{others}: check the name or pattern")
        found.update({file.location: file for file in matches})
    labels = _labels(list(found))
    files = [replace(file, label=labels[name]) for name, file in found.items()]
    return sorted(files, key=lambda file: (file.label, file.location))


def _labels(locations: Sequence[str]) -> dict[str, str]:
    """Return each location without the folders that all share, and without a query, which may contain a password."""
    paths = [location.partition("?")[0] if is_remote(location) else location for location in locations]
    split = [path.split("/") for path in paths]
    num_shared = len(os.path.commonprefix([parts[:-1] for parts in split]))
    labels: dict[str, str] = {}
    taken: Counter[str] = Counter()
    for location, parts in zip(locations, split, strict=True):
        label = printable("/".join(parts[num_shared:]))
        taken[label] += 1
        labels[location] = label if taken[label] == 1 else f"{label}~{taken[label]}"
    return labels


def _local_matches(location: str) -> list[SourceFile]:
    path = local_path(location)
    try:
        status = os.stat(path)
    except OSError as error:
        if not _GLOB_CHARACTERS.intersection(path):
            raise UserError(f"source {location} cannot be read ({error.strerror}): check the path") from error
        found = sorted(glob.glob(path, recursive=True))
        files = [_local_match(match) for match in found]
        return [file for file in files if not _is_passed_through(file, path)]
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"source {location} is not a file: name files, or a pattern such as {location}/*")
    return [_local_file(path, status)]


def kind_of_file(mode: int) -> str:
    """Return what a file that is not regular is called."""
    return _KINDS.get(stat.S_IFMT(mode), "special file")


def _local_match(path: str) -> SourceFile:
    try:
        status = retry_local(lambda: os.stat(path))
    except OSError as error:
        if os.path.islink(path):
            return _rejected_match(path, Rejection("link", None, printable(os.readlink(path))))
        return _rejected_match(path, unreadable(error))
    if stat.S_ISREG(status.st_mode):
        return _local_file(path, status)
    return _rejected_match(path, Rejection("not_regular", None, kind_of_file(status.st_mode)))


def _rejected_match(location: str, rejection: Rejection) -> SourceFile:
    return SourceFile(location, "", 0, "", rejection=rejection)


def _is_passed_through(file: SourceFile, pattern: str) -> bool:
    """Return whether it is a folder whose files a `**` at the pattern's end matches, too."""
    is_folder = file.rejection is not None and file.rejection.detail == _FOLDER
    return is_folder and pattern.rstrip("/").endswith("**")


def _local_file(path: str, status: os.stat_result) -> SourceFile:
    return SourceFile(path, "", status.st_size, str(status.st_mtime_ns))


def _remote_matches(location: str) -> list[SourceFile]:
    system, path = filesystem(location)
    try:
        if _GLOB_CHARACTERS.intersection(path):
            infos = retry_remote(location, lambda: system.glob(path, detail=True))
            files = [_remote_match(system, name, info) for name, info in sorted(infos.items())]
            return [file for file in files if not _is_passed_through(file, path)]
        info = retry_remote(location, lambda: system.info(path))
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"source {location} cannot be read ({type(error).__name__}: {first_line(error)}): "
            "check the address and your permissions"
        ) from error
    if info["type"] != "file":
        raise UserError(f"source {location} is not a file: name files, or a pattern such as {location}/*")
    return [_remote_file(system, path, info)]


def _remote_match(system: Any, path: str, info: dict[str, Any]) -> SourceFile:
    if info["type"] == "file":
        return _remote_file(system, path, info)
    kind = _FOLDER if info["type"] == "directory" else str(info["type"])
    return _rejected_match(system.unstrip_protocol(path), Rejection("not_regular", None, kind))


def _remote_file(system: Any, path: str, info: dict[str, Any]) -> SourceFile:
    if "url" in info and not any(name in info for name in _MARKS):  # the listing has no details
        info = retry_remote(path, lambda: system.info(path))
    size = None if info.get("size") is None else int(info["size"])
    return SourceFile(
        location=system.unstrip_protocol(path),
        label="",
        num_bytes=size,
        mark=remote_mark(info),
        seekable=size is not None and _serves_ranges(system, path, size),
    )


def remote_mark(info: dict[str, Any]) -> str:
    """Return a value that changes with a remote file's content; empty if the server reports none."""
    return next((str(info[name]) for name in _MARKS if info.get(name)), "")


def _serves_ranges(system: Any, path: str, num_bytes: int) -> bool:
    """Return whether the last byte can be read alone: true of every system except simple http servers."""
    if "http" not in system.protocol or num_bytes < 2:
        return True

    def last_byte() -> bool:
        try:
            with system.open(path, "rb", block_size=1, cache_type="none", size=num_bytes) as file:
                file.seek(num_bytes - 1)
                return len(file.read(1)) == 1
        except ValueError:  # fsspec's sign that the server sent the complete file
            return False

    return retry_remote(path, last_byte)
