"""The files that a source's locations stand for."""

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
from data_prep.sources.patience import patiently
from data_prep.sources.remote import filesystem, is_remote, local_path, open_location, retried
from data_prep.sources.units import printable

_GLOB_CHARACTERS = frozenset("*?[")
_BUFFER_BYTES = 1 << 18
_MAX_HELD_BYTES = 128 << 20
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
    """A file that holds files: an archive or a table.

    `label` is printable, unique in its source and the same on every machine. `mark` changes with the
    content: a time, an ETag. `num_bytes` is None where a server does not tell. `rejection`: a pattern's match
    that is not to be opened.
    """

    location: str
    label: str
    num_bytes: int | None
    mark: str
    seekable: bool = True
    rejection: Rejection | None = None

    def open(self, *, sequential: bool = False) -> BinaryIO:
        """A raw handle; `sequential` readers never seek."""
        return open_location(self.location, seekable=self.seekable and not sequential)

    def open_whole(self) -> BinaryIO:
        """A buffered handle that seeks. UserError where a server sends only whole files, and a large one."""
        if self.seekable:
            return io.BufferedReader(cast(io.RawIOBase, self.open()), _BUFFER_BYTES)
        if self.num_bytes is None or self.num_bytes > _MAX_HELD_BYTES:
            raise UserError(
                f"source {self.location}: its server sends whole files only, and this kind of file is read in "
                "pieces: download it, and name the local copy"
            )
        with self.open() as file:
            return io.BytesIO(b"".join(iter(lambda: file.read(_BUFFER_BYTES), b"")))

    @property
    def version(self) -> list[object]:
        """What changes with the content, for signatures."""
        rejection = self.rejection
        told = None if rejection is None else [rejection.rule, rejection.value, rejection.detail]
        return [self.num_bytes, self.mark, told]

    @property
    def basename(self) -> str:
        return self.label.rpartition("/")[2]


def find_files(locations: Sequence[str]) -> list[SourceFile]:
    """All files of the locations, once each, ordered by label; UserError if one stands for no file.

    What a pattern fits besides (a folder, a FIFO, a link to nowhere) comes with its `rejection`; only folders
    that `**` passes through do not.
    """
    found: dict[str, SourceFile] = {}
    for location in locations:
        matches = _remote_matches(location) if is_remote(location) else _local_matches(location)
        if all(match.rejection for match in matches):
            others = f" ({len(matches)} matches are no files that can be opened)" if matches else ""
            raise UserError(f"source {location}: there is no such file{others}: check the name or pattern")
        found.update({file.location: file for file in matches})
    labels = _labels(list(found))
    files = [replace(file, label=labels[name]) for name, file in found.items()]
    return sorted(files, key=lambda file: (file.label, file.location))


def _labels(locations: Sequence[str]) -> dict[str, str]:
    """Each location without the folders that all share, and without a query, which may hold a password."""
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
    """What a file that is not regular is called."""
    return _KINDS.get(stat.S_IFMT(mode), "special file")


def _local_match(path: str) -> SourceFile:
    try:
        status = patiently(lambda: os.stat(path))
    except OSError as error:
        if os.path.islink(path):
            return _no_file(path, Rejection("link", None, printable(os.readlink(path))))
        return _no_file(path, unreadable(error))
    if stat.S_ISREG(status.st_mode):
        return _local_file(path, status)
    return _no_file(path, Rejection("not_regular", None, kind_of_file(status.st_mode)))


def _no_file(location: str, rejection: Rejection) -> SourceFile:
    return SourceFile(location, "", 0, "", rejection=rejection)


def _is_passed_through(file: SourceFile, pattern: str) -> bool:
    """Whether it is a folder whose files a `**` at the pattern's end fits too."""
    is_folder = file.rejection is not None and file.rejection.detail == _FOLDER
    return is_folder and pattern.rstrip("/").endswith("**")


def _local_file(path: str, status: os.stat_result) -> SourceFile:
    return SourceFile(path, "", status.st_size, str(status.st_mtime_ns))


def _remote_matches(location: str) -> list[SourceFile]:
    system, path = filesystem(location)
    try:
        if _GLOB_CHARACTERS.intersection(path):
            infos = retried(location, lambda: system.glob(path, detail=True))
            files = [_remote_match(system, name, info) for name, info in sorted(infos.items())]
            return [file for file in files if not _is_passed_through(file, path)]
        info = retried(location, lambda: system.info(path))
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"source {location} cannot be read ({type(error).__name__}: {first_line(error)}): "
            "check the address and your rights"
        ) from error
    if info["type"] != "file":
        raise UserError(f"source {location} is not a file: name files, or a pattern such as {location}/*")
    return [_remote_file(system, path, info)]


def _remote_match(system: Any, path: str, info: dict[str, Any]) -> SourceFile:
    if info["type"] == "file":
        return _remote_file(system, path, info)
    kind = _FOLDER if info["type"] == "directory" else str(info["type"])
    return _no_file(system.unstrip_protocol(path), Rejection("not_regular", None, kind))


def _remote_file(system: Any, path: str, info: dict[str, Any]) -> SourceFile:
    if "url" in info and not any(name in info for name in _MARKS):  # listed, not asked for
        info = retried(path, lambda: system.info(path))
    size = None if info.get("size") is None else int(info["size"])
    return SourceFile(
        location=system.unstrip_protocol(path),
        label="",
        num_bytes=size,
        mark=remote_mark(info),
        seekable=size is not None and _serves_ranges(system, path, size),
    )


def remote_mark(info: dict[str, Any]) -> str:
    """What changes when a remote file's content does, as far as its server tells."""
    return next((str(info[name]) for name in _MARKS if info.get(name)), "")


def _serves_ranges(system: Any, path: str, num_bytes: int) -> bool:
    """Whether the last byte can be read alone. Every system does but http's simplest servers."""
    if "http" not in system.protocol or num_bytes < 2:
        return True

    def last_byte() -> bool:
        try:
            with system.open(path, "rb", block_size=1, cache_type="none", size=num_bytes) as file:
                file.seek(num_bytes - 1)
                return len(file.read(1)) == 1
        except ValueError:  # so fsspec tells that the server sent all of the file
            return False

    return retried(path, last_byte)
