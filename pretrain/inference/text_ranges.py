"""Ranges of a text that a user gives as lines, columns or bytes, in bytes and tokens. Texts are bytes of any encoding.

Shapes: T tokens of a text.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError


@dataclass(frozen=True)
class ByteRange:
    """Bytes [start, end) of a text."""

    start: int
    end: int

    def check_within(self, num_bytes: int, name: str) -> None:
        """Raise UserError when the range is empty or not inside the text `name` of `num_bytes` bytes."""
        if not 0 <= self.start < self.end <= num_bytes:
            raise UserError(
                f"bytes {self.start}:{self.end} are not in {name}, which has {num_bytes}: give START:END with "
                f"0 <= START < END <= {num_bytes}"
            )


def bytes_of_lines(text: bytes, first_line: int, last_line: int, name: str) -> ByteRange:
    """Return the bytes of lines first..last, counted from 1, both included, with their line ends.

    Lines end with a newline character. Raises UserError when the text, called `name`, does not have these lines.
    """
    ends = line_ends(text)
    if not 1 <= first_line <= last_line <= len(ends):
        lines = "line" if len(ends) == 1 else "lines"
        raise UserError(
            f"lines {first_line}-{last_line} are not in {name}, which has {len(ends)} {lines}: give FIRST-LAST with "
            f"1 <= FIRST <= LAST <= {len(ends)}"
        )
    return ByteRange(ends[first_line - 2] if first_line > 1 else 0, ends[last_line - 1])


def byte_at(text: bytes, line: int, column: int, name: str) -> int:
    """Return the offset of a cursor at `line` and `column`, both counted from 1.

    Columns count characters; a byte that is not UTF-8 counts as one. The column after a line's last character and the
    line after the last newline are valid. Raises UserError for others.
    """
    starts = [0, *line_ends(text)]
    if text and not text.endswith(b"\n"):
        starts.pop()
    if not 1 <= line <= len(starts):
        raise UserError(f"line {line} is outside {name}: its lines are 1 to {len(starts)}")
    start = starts[line - 1]
    content = text[start:].split(b"\n", 1)[0]
    characters = content.decode(errors="surrogateescape")
    last_column = len(characters) + 1
    if not 1 <= column <= last_column:
        raise UserError(
            f"column {column} is outside line {line} of {name}: its columns, in characters, are 1 to {last_column}"
        )
    return start + len(characters[: column - 1].encode(errors="surrogateescape"))


def line_ends(text: bytes) -> list[int]:
    """Return the offsets after each line's newline; the text's end if its last line has none."""
    newline = np.frombuffer(text, dtype=np.uint8) == ord("\n")
    ends: list[int] = (np.flatnonzero(newline) + 1).tolist()
    if text and not text.endswith(b"\n"):
        ends.append(len(text))
    return ends


def tokens_reaching_into(num_bytes_T: NDArray[np.int64], *wanted: ByteRange) -> NDArray[np.int64]:
    """Return the indices, ascending, of the tokens that share a byte with any of `wanted`, given their bytes."""
    end_T = np.cumsum(num_bytes_T)
    reaches_T = np.zeros(len(end_T), dtype=np.bool_)
    for one in wanted:
        reaches_T |= (end_T > one.start) & (end_T - num_bytes_T < one.end)
    return np.flatnonzero(reaches_T)
