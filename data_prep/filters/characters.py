"""Rules on characters: shares of letters and digits, control characters, encoded data in code."""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import ALPHANUMERIC, BASE64, CONTROL, HEX_DIGIT, HEX_RUN, LETTER, TextFile

# Code of these languages is mostly numbers and addresses; StarCoder2 exempts the two assemblies.
_EXEMPT = frozenset({"Motorola 68K Assembly", "WebAssembly", "Assembly", "LLVM", "SVG"})


def letter_share(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject a share of letters among all characters below `min_letter_share`.

    StarCoder used twice that for JSON and YAML, which drops every second package.json for its indentation; StarCoder2
    has one limit for all.
    """
    if file.language in _EXEMPT:
        return None
    wanted = config.min_letter_share * file.num_chars
    num = file.count(LETTER)
    if num < wanted:
        num += sum(map(str.isalpha, file.beyond_ascii))
    return Rejection("letter_share", num / file.num_chars) if num < wanted else None


def alphanumeric_share(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject a share of letters and digits among all characters below `min_alphanumeric_share`."""
    wanted = config.min_alphanumeric_share * file.num_chars
    num = file.count(ALPHANUMERIC)
    if num < wanted:
        # Non-ASCII characters can only add to the count, so they are counted only if they matter.
        num += sum(map(str.isalnum, file.beyond_ascii))
    return Rejection("alphanumeric_share", num / file.num_chars) if num < wanted else None


MAX_CONTROL_SHARE = 0.01


def control_characters(file: TextFile, _: FiltersConfig) -> Rejection | None:
    """Reject more than one control character in a hundred.

    Tab, line ends, form feed, backspace and escape do not count as such.
    """
    num = file.count(CONTROL)
    if num <= MAX_CONTROL_SHARE * file.num_chars:
        return None
    return Rejection("control_characters", num / file.num_chars)


_MIN_BASE64_CHARS = 64
_BASE64_CHARS_PER_DIGIT = 32
_BLOCK_BYTES = 8
# Any 64 consecutive characters contain seven aligned blocks of 8.
_BASE64_BLOCKS = b"\1" * 7
# Possessive, to prevent backtracking whatever the file contains.
_HEX = re.compile(rb"(?:(?:\b0x|\\x|\b)[0-9a-fA-F]{2}(?:,\s{0,32}+|\b\s{0,32}+)){8,}")
_MAX_BYTES_PER_HEX = len("0xff,") + 32
_MIN_HEX_IN_ROW = 8
_UNICODE = re.compile(rb"(?:\\u[0-9a-fA-F]{4}){8,}")
_BYTES_PER_ESCAPE = len("\\uffff")


@dataclass(frozen=True, slots=True)
class _Runs:
    kind: str
    longest_bytes: int
    total_bytes: int


def encoded_data(
    file: TextFile, _: FiltersConfig, *, max_run_chars: int = 1024, max_share: float = 0.5
) -> Rejection | None:
    """Reject a run of encoded data above `max_run_chars`, or a share in runs of one kind above `max_share`.

    Encoded data is base64, hexadecimal bytes and \\u escapes. The detail names the kind and the measure. The defaults
    are StarCoder2's.
    """
    max_total_bytes = max_share * len(file.data)
    # Runs that add up to less than this cannot exceed a limit.
    least = min(max_run_chars, max_total_bytes)
    for runs in (_base64_runs(file), _hex_runs(file, least), _unicode_runs(file, least)):
        if runs is None:
            continue
        if runs.longest_bytes > max_run_chars:
            return Rejection("encoded_data", float(runs.longest_bytes), f"{runs.kind}, longest run")
        if runs.total_bytes > max_total_bytes:
            return Rejection("encoded_data", runs.total_bytes / len(file.data), f"{runs.kind}, share")
    return None


def _base64_runs(file: TextFile) -> _Runs | None:
    if _BASE64_BLOCKS not in _full_blocks(file, BASE64).tobytes():
        return None
    breaks = np.flatnonzero((file.classes & np.uint8(BASE64)) == 0)
    starts = np.concatenate(([0], breaks + 1))
    lengths = np.concatenate((breaks, [len(file.data)])) - starts
    starts, lengths = starts[lengths >= _MIN_BASE64_CHARS], lengths[lengths >= _MIN_BASE64_CHARS]
    classes = file.classes & np.uint8(ALPHANUMERIC | LETTER)
    num_digits = np.concatenate(([0], np.cumsum(classes == ALPHANUMERIC, dtype=np.int64)))
    has_digits = (num_digits[starts + lengths] - num_digits[starts]) * _BASE64_CHARS_PER_DIGIT >= lengths
    lengths = lengths[has_digits]
    return _Runs("base64", int(lengths.max()), int(lengths.sum())) if len(lengths) else None


def _hex_runs(file: TextFile, least_bytes: float) -> _Runs | None:
    # A run of 8 bytes has 23 characters, of which more than half are in complete blocks. Deeply indented code also has
    # such blocks, so the pattern is tried only where enough possible bytes are close together.
    if 2 * _BLOCK_BYTES * np.count_nonzero(_full_blocks(file, HEX_RUN)) < least_bytes:
        return None
    places = _hex_places(file)
    if sum(end - start for start, end in places) < least_bytes:
        return None
    return _matches("hexadecimal", _HEX, file.data, places)


def _hex_places(file: TextFile) -> list[tuple[int, int]]:
    """Return where runs may be: eight or more pairs of hexadecimal digits, each close enough to the next.

    No letter or digit follows a pair, and none but an x precedes it.
    """
    is_digit = (file.classes & np.uint8(HEX_DIGIT)) != 0
    is_word = (file.classes & np.uint8(ALPHANUMERIC)) != 0
    is_x = np.frombuffer(file.data, np.uint8) == ord("x")
    pairs = is_digit[:-1] & is_digit[1:]
    pairs[:-1] &= ~is_word[2:]
    pairs[1:] &= ~is_word[:-2] | is_x[:-2]
    found = np.flatnonzero(pairs)
    if len(found) < _MIN_HEX_IN_ROW:
        return []
    breaks = np.flatnonzero(found[1:] - found[:-1] > _MAX_BYTES_PER_HEX)
    first = np.concatenate(([0], breaks + 1))
    last = np.concatenate((breaks, [len(found) - 1]))
    is_run = last - first + 1 >= _MIN_HEX_IN_ROW
    starts = np.maximum(found[first[is_run]] - len("0x"), 0)
    ends = found[last[is_run]] + _MAX_BYTES_PER_HEX
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _unicode_runs(file: TextFile, least_bytes: float) -> _Runs | None:
    # Counting one byte is ten times as fast as counting two.
    for part in (b"\\", b"\\u"):
        if _BYTES_PER_ESCAPE * file.data.count(part) < least_bytes:
            return None
    return _matches("unicode escapes", _UNICODE, file.data, [(0, len(file.data))])


def _full_blocks(file: TextFile, class_bit: int) -> NDArray[np.bool_]:
    """Return which aligned blocks of 8 bytes are completely of the class; bool [num_bytes // 8]."""
    num_blocks = len(file.data) // _BLOCK_BYTES
    words = file.classes[: num_blocks * _BLOCK_BYTES].view(np.uint64)
    mask = np.uint64(class_bit * 0x0101010101010101)
    full: NDArray[np.bool_] = (words & mask) == mask
    return full


def _matches(
    kind: str, pattern: re.Pattern[bytes], data: bytes, places: list[tuple[int, int]]
) -> _Runs | None:
    lengths = [
        found.end() - found.start() for start, end in places for found in pattern.finditer(data, start, end)
    ]
    return _Runs(kind, max(lengths), sum(lengths)) if lengths else None
