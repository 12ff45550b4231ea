"""Detection of files that are one JSON array where one object per line is expected."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TypeVar

from data_prep.sources.decompress import StreamEnd
from data_prep.sources.units import UNIT_BYTES

Item = TypeVar("Item")

_BOM = b"\xef\xbb\xbf"
# The number of bytes examined, and of blanks before them.
_MAX_BYTES = UNIT_BYTES
_MAX_ELEMENTS = 1000
# A truncated literal or escape begins at most so many characters before the end.
_LONGEST_CUT_CHARS = 8
_BLANKS = re.compile(r"\s*")


def detect_array(pieces: Iterator[bytes]) -> tuple[bool, Iterator[bytes]]:
    """Return whether a file is one JSON array, judged by its beginning, and an iterator of all its pieces.

    A list on a line of its own, or a broken line, is no such array. Usually consumes one piece; the iterator repeats
    the pieces that were consumed.
    """
    beginning = _Beginning()
    _, all_pieces = peek(pieces, beginning.add)
    return beginning.is_array(), all_pieces


def peek(items: Iterator[Item], is_enough: Callable[[Item], bool]) -> tuple[list[Item], Iterator[Item]]:
    """Return the first items, up to one for which `is_enough` is true, and an iterator of all items.

    An error that ends the items early (OSError, StreamEnd) is raised by the iterator, not here.
    """
    first: list[Item] = []
    failure: list[Exception] = []
    try:
        for item in items:
            first.append(item)
            if is_enough(item):
                break
    except (OSError, StreamEnd) as error:
        failure.append(error)
    return first, chain(first, _raise(failure), items)


def _raise(failure: list[Exception]) -> Iterator[Item]:
    for error in failure:
        raise error
    yield from ()


class _Beginning:
    """Collects the beginning of a file's text, from its first character that is not blank."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._num_blanks = 0
        self._is_first = True
        self._is_truncated = False

    def add(self, piece: bytes) -> bool:
        """Add a piece and return whether no more are needed."""
        if self._is_first:
            piece, self._is_first = piece.removeprefix(_BOM), False
        if not self._text:
            text = piece.lstrip()
            self._num_blanks += len(piece) - len(text)
            piece = text
        self._text += piece[: _MAX_BYTES + 1 - len(self._text)]
        self._is_truncated = len(self._text) > _MAX_BYTES
        return (
            self._is_truncated
            or self._num_blanks > _MAX_BYTES
            or (len(self._text) > 0 and not self._text.startswith(b"["))
        )

    def is_array(self) -> bool:
        if not self._text.startswith(b"["):
            return False
        return _is_array(self._text[:_MAX_BYTES].decode(errors="replace"), self._is_truncated)


def _is_array(text: str, is_truncated: bool) -> bool:
    """Return whether a text that begins with "[" is one array. `is_truncated`: `text` is only its beginning."""
    try:
        end = json.JSONDecoder().raw_decode(text)[1]
    except RecursionError:
        return False
    except ValueError:
        pass
    else:
        if text[end:].strip() or not is_truncated:
            return not text[end:].strip()  # else the lines are lists
    end, num_elements = _elements(text)
    if num_elements is None:
        return False
    if is_truncated:
        # A list on a line may contain anything; an array that fills the file contains objects or has several lines.
        return text[1:].lstrip().startswith("{") or (num_elements > 0 and "\n" in text[:end])
    # The file itself is truncated. The lines of an array are not objects, because commas separate the objects.
    lines = text.split("\n")[1:_MAX_ELEMENTS]
    return num_elements > 0 and not any(map(is_object, lines[:-1]))


def is_object(line: str | bytes) -> bool:
    """Return whether the line is a JSON object."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _elements(text: str) -> tuple[int, int | None]:
    """Return how far the text is an array without its end, and the number of elements that a comma follows.

    The number is None if the text is something else before its end.
    """
    decode = json.JSONDecoder().raw_decode
    length = len(text.rstrip())
    position = 1
    for number in range(_MAX_ELEMENTS):
        position = _after_blanks(text, position)
        try:
            position = _after_blanks(text, decode(text, position)[1])
        except json.JSONDecodeError as error:
            is_at_end = error.msg.startswith("Unterminated string") or error.pos > length - _LONGEST_CUT_CHARS
            return position, number if is_at_end else None
        except RecursionError:
            return position, None
        if position >= length:
            return position, number
        if text[position] != ",":
            return position, None
        position += 1
    return position, _MAX_ELEMENTS


def _after_blanks(text: str, position: int) -> int:
    blanks = _BLANKS.match(text, position)
    return position if blanks is None else blanks.end()
