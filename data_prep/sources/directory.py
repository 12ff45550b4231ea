"""Folders of source trees, local or remote."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from cluster.errors import UserError, first_line
from data_prep.documents import Rejection
from data_prep.sources.config import DirectoryConfig
from data_prep.sources.files import kind_of_file, remote_mark
from data_prep.sources.listed import ListedFile, name_of, plan_listed, unreadable
from data_prep.sources.local_retries import retry_local
from data_prep.sources.remote import filesystem, is_remote, local_path, retry_remote
from data_prep.sources.units import VCS_FOLDERS, WorkUnit, printable
from data_prep.sources.vendored import Neighbours, vendored_by


def plan_directory(config: DirectoryConfig, source: str) -> list[WorkUnit]:
    """Return units of all files below the folder, except `.git`, `.hg` and `.svn`.

    Hidden folders are entered; links are not followed. Unless `keep_vendored`, every vendored file is a row, too. Only
    the parts of a path within the repository count for that: within the folder itself if it has a project's marks or
    a `repository`, else within the folders directly below it.

    UserError when the folder does not exist, cannot be listed, or has no file that may be opened.
    """
    neighbours = Neighbours()
    # The listing must be complete first, because neighbours decide whether a file is vendored.
    found = list((_remote_files if is_remote(config.path) else _local_files)(config.path, neighbours))
    names = _Names(config, neighbours)
    suffixes = "" if config.suffixes is None else f" (suffixes {', '.join(config.suffixes)})"
    return plan_listed(
        source, map(names.file, found), config.exclude, config.max_total_bytes, config.path + suffixes
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """A file below the root, at the path `relative`; the other fields are those of `ListedFile`."""

    relative: str
    place: str
    num_bytes: int | None
    mark: str
    rejection: Rejection | None = None


class _Names:
    """Maps a path below the root to its repository and the path in that."""

    def __init__(self, config: DirectoryConfig, neighbours: Neighbours) -> None:
        self._neighbours = neighbours
        self._repository = config.repository
        self._suffixes = config.suffixes
        self._keeps_vendored = config.keep_vendored
        root = config.path if is_remote(config.path) else os.path.realpath(local_path(config.path))
        self._root_name = printable(name_of(root)) or "root"

    def file(self, found: _Found) -> ListedFile:
        relative, rejection = found.relative, found.rejection
        first, slash, rest = relative.partition("/")
        if self._repository is not None or not slash or not rest:
            repository, path = self._repository or self._root_name, relative
        else:
            repository, path = first, rest
        if rejection is None and not self._keeps_vendored:
            is_one_repository = self._repository is not None or self._neighbours.is_project("")
            what = vendored_by(relative, self._neighbours, is_below_repositories=not is_one_repository)
            rejection = None if what is None else Rejection("vendored", None, what)
        if rejection is None and self._suffixes is not None and not relative.endswith(self._suffixes):
            rejection = Rejection("suffix")
        names = (printable(repository), printable(path), "")
        return ListedFile(*names, found.place, found.num_bytes, found.mark, None, rejection)


def _local_files(location: str, neighbours: Neighbours) -> Iterator[_Found]:
    """Yield files in no particular order; paths are absolute, because workers have another working directory."""
    root = local_path(location)
    try:
        folders = [("", _entries(root))]
    except OSError as error:
        raise UserError(
            f"corpus path {location} is not a folder that can be read ({error.strerror}): "
            "give that of a folder of source trees (prep.source.path=FOLDER)"
        ) from error
    while folders:
        prefix, entries = folders.pop()
        for entry in entries:
            relative = prefix + entry.name
            try:
                status = retry_local(partial(entry.stat, follow_symlinks=False))
                if not stat.S_ISDIR(status.st_mode):
                    neighbours.add(relative)
                    yield _local_file(relative, entry.path, status)
                elif entry.name in VCS_FOLDERS:
                    neighbours.add(relative)
                else:
                    folders.append((relative + "/", _entries(entry.path)))
            except OSError as error:
                # The row of a folder, which stands for an unknown number of files, ends with a slash.
                yield _Found(relative + "/" * _is_folder(entry), entry.path, 0, "", unreadable(error))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _entries(folder: str) -> list[os.DirEntry[str]]:
    def listed() -> list[os.DirEntry[str]]:
        with os.scandir(folder) as entries:
            return list(entries)

    return retry_local(listed)


def _local_file(relative: str, place: str, status: os.stat_result) -> _Found:
    kind = stat.S_IFMT(status.st_mode)
    rejection = None
    if kind == stat.S_IFLNK:
        rejection = Rejection("link", None, printable(os.readlink(place)))
    elif kind != stat.S_IFREG:
        rejection = Rejection("not_regular", None, kind_of_file(kind))
    num_bytes = status.st_size if rejection is None else 0
    return _Found(relative, place, num_bytes, str(status.st_mtime_ns), rejection)


def _remote_files(location: str, neighbours: Neighbours) -> Iterator[_Found]:
    system, root = filesystem(location)
    try:
        found: dict[str, Any] = retry_remote(location, lambda: system.find(root, detail=True))
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"corpus path {location} cannot be listed ({type(error).__name__}: {first_line(error)}): "
            "check the address and your permissions"
        ) from error
    prefix = root.rstrip("/") + "/"
    for path, info in found.items():
        relative = path.removeprefix(prefix)
        *folders, _ = relative.split("/")
        version_control = next((depth for depth, name in enumerate(folders) if name in VCS_FOLDERS), None)
        if version_control is not None:
            neighbours.add("/".join(folders[: version_control + 1]))
        else:
            neighbours.add(relative)
            if info.get("size") is None:  # http: listed from a page of links
                info = retry_remote(path, partial(system.info, path))
            size = None if info.get("size") is None else int(info["size"])
            yield _Found(relative, system.unstrip_protocol(path), size, remote_mark(info))
