"""Encoded data in code: images, keys, fonts and tables as base64, hexadecimal bytes or \\u escapes.

The three patterns are StarCoder2's: 64 and more base64 characters (line ends among them), 8 and more hexadecimal
bytes, 8 and more \\u escapes. Ours also takes hexadecimal bytes with a space after the comma, as in C arrays.
"""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import BASE64, HEX, TextFile

_MIN_BASE64_CHARS = 64
# Possessive, so that nothing is tried twice whatever the file holds.
_HEX = re.compile(rb"(?:(?:\b0x|\\x|\b)[0-9a-fA-F]{2}(?:,\s*+|\b\s*+)){8,}+")
_UNICODE = re.compile(rb"(?:\\u[0-9a-fA-F]{4}){8,}+")
_BLOCK_BYTES = 8


@dataclass(frozen=True, slots=True)
class _Runs:
    kind: str
    longest_bytes: int
    total_bytes: int


def encoded_data(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """The longest run in characters when it exceeds `max_encoded_chars`, or the share of the file in runs of
    one kind when it exceeds `max_encoded_share`; the detail names kind and measure."""
    if config.max_encoded_chars is None:
        return None
    max_total_bytes = config.max_encoded_share * len(file.data)
    # Runs that add up to less than this decide nothing.
    least = min(config.max_encoded_chars, max_total_bytes)
    for runs in (_base64_runs(file), _hex_runs(file, least), _unicode_runs(file, least)):
        if runs is None:
            continue
        if runs.longest_bytes > config.max_encoded_chars:
            return Rejection("encoded_data", float(runs.longest_bytes), f"{runs.kind}, longest run")
        if runs.total_bytes > max_total_bytes:
            return Rejection("encoded_data", runs.total_bytes / len(file.data), f"{runs.kind}, share")
    return None


def _base64_runs(file: TextFile) -> _Runs | None:
    # 64 characters in a row hold seven whole blocks in a row; hardly any file has even four.
    blocks = _full_blocks(file, BASE64)
    pairs = blocks[:-1] & blocks[1:]
    if not (pairs[:-2] & pairs[2:]).any():
        return None
    breaks = np.flatnonzero((file.classes & np.uint8(BASE64)) == 0)
    lengths = np.diff(breaks, prepend=-1, append=len(file.data)) - 1
    lengths = lengths[lengths >= _MIN_BASE64_CHARS]
    return _Runs("base64", int(lengths.max()), int(lengths.sum())) if len(lengths) else None


def _hex_runs(file: TextFile, least_bytes: float) -> _Runs | None:
    # A run of 8 bytes has 23 characters; of any such run more than half is in whole blocks.
    if 2 * _BLOCK_BYTES * np.count_nonzero(_full_blocks(file, HEX)) < least_bytes:
        return None
    return _matches("hexadecimal", _HEX, file.data)


def _unicode_runs(file: TextFile, least_bytes: float) -> _Runs | None:
    if 6 * file.data.count(b"\\u") < least_bytes:
        return None
    return _matches("unicode escapes", _UNICODE, file.data)


def _full_blocks(file: TextFile, class_bit: int) -> NDArray[np.bool_]:
    """Which aligned blocks of 8 bytes are of the class throughout; bool [num_bytes // 8]."""
    num_blocks = len(file.data) // _BLOCK_BYTES
    words = file.classes[: num_blocks * _BLOCK_BYTES].view(np.uint64)
    mask = np.uint64(class_bit * 0x0101010101010101)
    full: NDArray[np.bool_] = (words & mask) == mask
    return full


def _matches(kind: str, pattern: re.Pattern[bytes], data: bytes) -> _Runs | None:
    lengths = [found.end() - found.start() for found in pattern.finditer(data)]
    return _Runs(kind, max(lengths), sum(lengths)) if lengths else None
