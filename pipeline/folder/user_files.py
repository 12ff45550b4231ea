"""Checks files that the user names: texts to read as bytes, and paths to write to."""

import re
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import UserError

STANDARD_INPUT = Path("-")


@dataclass(frozen=True)
class TextFile:
    """A text with its name for messages."""

    name: str
    data: bytes


def read_text_file(path: Path) -> TextFile:
    """Read a whole file, or standard input for "-". Raises UserError if it cannot be read or is empty."""
    if path == STANDARD_INPUT:
        return _not_empty(TextFile("standard input", sys.stdin.buffer.read()))
    try:
        return _not_empty(TextFile(str(path), path.read_bytes()))
    except FileNotFoundError:
        raise UserError(f"there is no file {path}: give an existing one") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder: give a file") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): give a file that can") from None


def check_output(path: Path, option: str, *read: Path) -> None:
    """Raise UserError unless a file can be written to `path`; called before anything is computed.

    Refused are a folder, a path that cannot be written, a path in a missing folder, and any of the files in `read`.
    """
    if path.is_dir():
        raise UserError(f"{option} {path} is a folder: give the name of a file")
    check_place(path, option)
    if not path.absolute().parent.exists():
        raise UserError(f"{option} {path}: there is no folder {path.parent}: create it, or give another name")
    if path.exists() and any(given.exists() and path.samefile(given) for given in read):
        raise UserError(f"{option} {path} is the file that is read: give another name")


def check_place(path: Path, option: str = "--out") -> None:
    """Raise UserError if neither a file nor a folder can be created at `path`; folders above it may be missing."""
    refuse_url(path, option)
    try:
        places = path.absolute().parents
        nearest = path if path.is_dir() else next(parent for parent in places if parent.exists())
        if not nearest.is_dir():
            raise UserError(f"{option} {path}: {nearest} is a file: give another name")
        with suppress(FileNotFoundError):
            path.stat()  # a loop of symbolic links, which `exists` takes for a missing file
        # Permissions alone are not enough: root may write to /proc, but no file can be created there.
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        raise UserError(f"{option} {path} cannot be written ({error.strerror}): give another name") from None


def refuse_url(path: Path, option: str = "--out") -> None:
    """Raise UserError for a URL, which `Path` would turn into a folder with a colon in its name."""
    if found := re.match(r"([a-zA-Z][a-zA-Z0-9+.-]+):/", str(path)):
        # `Path` has made one slash of two.
        url = f"{found[1]}://{str(path)[found.end() :]}"
        raise UserError(
            f"{option} {url} is a URL: outputs are written to a file system, local or shared by all nodes; give a path"
        )


def _not_empty(file: TextFile) -> TextFile:
    if not file.data:
        raise UserError(f"{file.name} is empty: give a text of at least one character")
    return file
