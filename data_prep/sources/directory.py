"""A folder of source trees."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from cluster.errors import UserError
from data_prep.config import DirectoryConfig
from data_prep.documents import SourceFile
from data_prep.sources.status import file_status, refuse_folder


def list_directory(config: DirectoryConfig) -> list[SourceFile]:
    """Regular files below `config.path` with one of the suffixes; hidden folders and links are not entered.

    The repository is the first folder below `config.path`, or that folder's own name for files directly
    in it. Raises UserError when the folder is not there or one below it cannot be read.
    """
    root = _root(config)
    top_level_name = root.resolve().name or "root"
    files = []
    for path in _walk(root):
        if not path.name.endswith(config.suffixes):
            continue
        status = file_status(path)
        if not stat.S_ISREG(status.mode):
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
                num_bytes=status.num_bytes,
                mtime_ns=status.mtime_ns,
                licence=None,
            )
        )
    return files


def _root(config: DirectoryConfig) -> Path:
    """Absolute, because workers have another working directory."""
    try:
        root = config.path.expanduser().absolute()
        if root.is_dir():
            return root
    except (OSError, RuntimeError):  # RuntimeError: ~ of an unknown user
        pass
    raise UserError(f"corpus path {config.path} is not a folder: give the path of a folder of source trees")


def _walk(root: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(root, onerror=refuse_folder, followlinks=False):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(names):
            yield Path(folder) / name


def _printable(name: str) -> str:
    """File names that are not UTF-8 cannot be stored as text: their odd bytes are spelled out."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
