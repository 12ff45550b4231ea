"""Reading of a task's files as bytes and text, and their fingerprints."""

import math
from collections.abc import Iterable
from pathlib import Path

from cluster.errors import UserError, first_line
from cluster.storage import sha256_file
from data_prep.sources.decompress import CODECS, StreamEnd, unpacked_pieces
from data_prep.sources.limits import ReadLimits

MAX_UNPACKED_BYTES = 16 << 30
"""Limit on the unpacked size of a packed file, which is held in memory.

Its compression ratio is not limited, because it is the user's own file.
"""


def read_bytes(path: Path) -> bytes:
    """Return the bytes of the file, decompressed if its name ends in .gz, .zst, .bz2 or .xz.

    Raise UserError if the file is missing, is a folder, cannot be read or decompressed, or unpacks to more than
    `MAX_UNPACKED_BYTES`.
    """
    codec = CODECS.get(path.suffix)
    limits = ReadLimits(max_archive_ratio=math.inf, max_archive_bytes=MAX_UNPACKED_BYTES)
    try:
        with path.open("rb") as file:
            return file.read() if codec is None else b"".join(unpacked_pieces(file, codec, limits))
    except StreamEnd as end:
        # Packing a file again does not change its unpacked size.
        remedy = "unpack it, and give that file" if end.rule == "bomb" else "pack it again"
        raise UserError(f"task file {path} cannot be unpacked ({end.reason}): {remedy}") from None
    except FileNotFoundError:
        raise UserError(f"task file {path} does not exist: check the task's folder and file names") from None
    except (OSError, ValueError) as error:
        raise UserError(f"task file {path} cannot be read ({first_line(error)})") from None


def read_text(path: Path) -> str:
    """Return the file's text, read as UTF-8 without a byte order mark. Raise UserError if it is not UTF-8."""
    data = read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"task file {path} is not UTF-8 (line {line}): convert it to UTF-8") from None


def fingerprints(paths: Iterable[Path]) -> dict[str, str]:
    """Return the SHA-256 of each file by its path as given. Raise UserError if one is missing."""
    found = {}
    for path in paths:
        if not path.is_file():
            raise UserError(f"task file {path} does not exist: check the task's folder and file names")
        found[str(path)] = sha256_file(path)
    return found


def read_lines(path: Path) -> list[str]:
    """Return the lines, stripped of surrounding white space; only a line feed ends a line.

    Code contains other characters that `str.splitlines` would split at (form feeds, U+2028). Raise UserError if the
    file is missing, is not UTF-8, or has only blank lines.
    """
    lines = read_text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    if not any(line.strip() for line in lines):
        raise UserError(f"task file {path} is empty: it must have one text per line")
    return [line.strip() for line in lines]


def read_parallel(source: Path, target: Path) -> list[tuple[str, str]]:
    """Return the pairs of lines. Raise UserError if the files have different numbers of lines."""
    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        raise UserError(
            f"{source} has {len(sources)} lines but {target} has {len(targets)}: "
            "line i of one must belong to line i of the other"
        )
    return list(zip(sources, targets, strict=True))
