"""Files that hold one JSON array where one object per line is expected."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TypeVar

from data_prep.sources.decompress import StreamEnd
from data_prep.sources.units import UNIT_BYTES

Item = TypeVar("Item")

_BOM = b"\xef\xbb\xbf"
# As many are looked at, and as many of white space before them.
_LOOKED_AT_BYTES = UNIT_BYTES
_LOOKED_AT_ELEMENTS = 1000
# A cut literal or escape has begun so many characters before the end, or less.
_LONGEST_CUT_CHARS = 8
_BLANKS = re.compile(r"\s*")


def begins_array(pieces: Iterator[bytes]) -> tuple[bool, Iterator[bytes]]:
    """Whether a file is one JSON array, as far as its beginning tells: not where a line is a list or is broken.

    Takes one piece, as a rule. The second value is all pieces, those that were taken included.
    """
    beginning = _Beginning()
    _, again = peeked(pieces, beginning.is_enough)
    return beginning.is_array(), again


def peeked(items: Iterator[Item], is_enough: Callable[[Item], bool]) -> tuple[list[Item], Iterator[Item]]:
    """The first items, up to one that is enough, and all items, these included.

    What ends the items before (OSError, StreamEnd) is raised where it ends them, not here.
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
    return first, chain(first, _raised(failure), items)


def _raised(failure: list[Exception]) -> Iterator[Item]:
    for error in failure:
        raise error
    yield from ()


class _Beginning:
    """The text of a file's beginning, from its first character that is not blank."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._num_blanks = 0
        self._is_first = True
        self._is_cut = False

    def is_enough(self, piece: bytes) -> bool:
        """Take a piece; whether no more are wanted."""
        if self._is_first:
            piece, self._is_first = piece.removeprefix(_BOM), False
        if not self._text:
            text = piece.lstrip()
            self._num_blanks += len(piece) - len(text)
            piece = text
        self._text += piece[: _LOOKED_AT_BYTES + 1 - len(self._text)]
        self._is_cut = len(self._text) > _LOOKED_AT_BYTES
        return (
            self._is_cut
            or self._num_blanks > _LOOKED_AT_BYTES
            or (len(self._text) > 0 and not self._text.startswith(b"["))
        )

    def is_array(self) -> bool:
        if not self._text.startswith(b"["):
            return False
        return _is_array(self._text[:_LOOKED_AT_BYTES].decode(errors="replace"), self._is_cut)


def _is_array(text: str, is_cut: bool) -> bool:
    """Whether a text that begins with "[" is one array. `is_cut`: it goes on after what is given."""
    try:
        end = json.JSONDecoder().raw_decode(text)[1]
    except RecursionError:
        return False
    except ValueError:
        pass
    else:
        if text[end:].strip() or not is_cut:
            return not text[end:].strip()  # else lists stand on lines
    end, num_elements = _elements(text)
    if num_elements is None:
        return False
    if is_cut:
        # Lists on lines are of anything: a whole array that is worth its name here is of objects, or of several lines.
        return text[1:].lstrip().startswith("{") or (num_elements > 0 and "\n" in text[:end])
    # It is cut in itself. The lines of an array are no objects, for commas stand between those.
    lines = text.split("\n")[1:_LOOKED_AT_ELEMENTS]
    return num_elements > 0 and not any(map(is_object, lines[:-1]))


def is_object(line: str | bytes) -> bool:
    """Whether the line is a JSON object."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _elements(text: str) -> tuple[int, int | None]:
    """How far the text is an array without its end, and the number of elements that a comma follows; None where it is
    something else before its end."""
    decode = json.JSONDecoder().raw_decode
    length = len(text.rstrip())
    position = 1
    for number in range(_LOOKED_AT_ELEMENTS):
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
    return position, _LOOKED_AT_ELEMENTS


def _after_blanks(text: str, position: int) -> int:
    blanks = _BLANKS.match(text, position)
    return position if blanks is None else blanks.end()
