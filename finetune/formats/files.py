"""Bytes and text of a task's files, and what identifies them."""

from collections.abc import Iterable
from pathlib import Path

from cluster.errors import UserError, first_line
from cluster.storage import sha256_file
from data_prep.sources.decompress import CODECS, StreamEnd, unpacked_pieces
from data_prep.sources.limits import ReadLimits


def read_bytes(path: Path) -> bytes:
    """What the file holds, unpacked where its name ends as packed sources' do (.gz, .zst, .bz2, .xz).

    UserError when the file is missing, is a folder, cannot be read or unpacked.
    """
    codec = CODECS.get(path.suffix)
    try:
        with path.open("rb") as file:
            return file.read() if codec is None else b"".join(unpacked_pieces(file, codec, ReadLimits()))
    except StreamEnd as end:
        raise UserError(f"task file {path} cannot be unpacked ({end.reason}): pack it again") from None
    except FileNotFoundError:
        raise UserError(f"task file {path} does not exist: check the task's folder and file names") from None
    except (OSError, ValueError) as error:
        raise UserError(f"task file {path} cannot be read ({first_line(error)})") from None


def read_text(path: Path) -> str:
    """The file as UTF-8, a byte order mark left out. UserError when it is no UTF-8."""
    data = read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"task file {path} is not UTF-8 (line {line}): convert it to UTF-8") from None


def fingerprints(paths: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of each file by its name as given. UserError when one is missing."""
    found = {}
    for path in paths:
        if not path.is_file():
            raise UserError(f"task file {path} does not exist: check the task's folder and file names")
        found[str(path)] = sha256_file(path)
    return found
