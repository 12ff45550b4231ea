"""A folder of source trees."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from cluster.errors import UserError
from data_prep.config import DirectoryConfig
from data_prep.documents import SourceFile


def list_directory(config: DirectoryConfig) -> list[SourceFile]:
    """Regular files below `config.path` with one of the suffixes; hidden folders and links are not entered.

    The repository is the first folder below `config.path`, or that folder's own name for files directly
    in it. Raises UserError when the folder is not there.
    """
    root = config.path.expanduser()
    if not root.is_dir():
        raise UserError(f"corpus path {root} is not a folder: give the path of a folder of source trees")
    top_level_name = root.resolve().name or "root"
    files = []
    for path in _walk(root):
        if not path.name.endswith(config.suffixes):
            continue
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            continue
        relative = path.relative_to(root)
        repository, name = (
            (relative.parts[0], relative.relative_to(relative.parts[0]))
            if len(relative.parts) > 1
            else (top_level_name, relative)
        )
        files.append(
            SourceFile(
                source=config.kind,
                repository=_printable(repository),
                path=_printable(name.as_posix()),
                absolute=str(path),
                num_bytes=status.st_size,
                mtime_ns=status.st_mtime_ns,
                licence=None,
            )
        )
    return files


def _walk(root: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(root, followlinks=False):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(names):
            yield Path(folder) / name


def _printable(name: str) -> str:
    """File names that are not UTF-8 cannot be stored as text: their odd bytes are spelled out."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
