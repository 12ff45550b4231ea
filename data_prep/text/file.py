"""A decoded file with measurements that the rules share, computed once in vectors over its bytes."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

# One bit per class of bytes, so that one pass over a file serves all rules.
LETTER = 1
ALPHANUMERIC = 2
BASE64 = 4
HEX_DIGIT = 8
# Characters that runs of hexadecimal bytes are written with.
HEX_RUN = 16
WHITESPACE = 32
CONTINUATION = 64
CONTROL = 128


def _class_of(code: int) -> int:
    character = chr(code) if code < 128 else ""
    hexadecimal = character != "" and character in "0123456789abcdefABCDEF"
    classes = {
        LETTER: character.isalpha(),
        ALPHANUMERIC: character.isalnum(),
        BASE64: character.isalnum() or (character != "" and character in "+/=\n"),
        HEX_DIGIT: hexadecimal,
        HEX_RUN: hexadecimal or (character != "" and (character in "x\\," or character.isspace())),
        WHITESPACE: character.isspace(),
        CONTINUATION: 0x80 <= code < 0xC0,
        # Escapes (terminal colours) and backspaces (overstriking) do occur in source files.
        CONTROL: code == 127 or (code < 32 and code not in b"\t\n\v\f\r\b\x1b"),
    }
    return sum(bit for bit, member in classes.items() if member)


_CLASSES = bytes(_class_of(code) for code in range(256))
_ASCII = bytes(range(128))


@dataclass(frozen=True)
class TextFile:
    """UTF-8 text with "\\n" line ends, its path in the repository and its language (None: unknown).

    A line ends with "\\n" or with the file; an empty file has no lines. Lengths are in characters (code points),
    without the line end.
    """

    data: bytes
    path: str
    language: str | None

    @cached_property
    def name(self) -> str:
        """The last part of the path, in lower case."""
        return self.path.rpartition("/")[2].lower()

    @cached_property
    def text(self) -> str:
        """The text as a str; working on the bytes is far cheaper."""
        return self.data.decode()

    @cached_property
    def is_ascii(self) -> bool:
        """Whether all characters are ASCII, so that each is one byte."""
        return self.data.isascii()

    @cached_property
    def classes(self) -> NDArray[np.uint8]:
        """The class bits of every byte, uint8 [num_bytes]."""
        return np.frombuffer(self.data.translate(_CLASSES), np.uint8)

    def count(self, classes: int) -> int:
        """Return the number of bytes in any of `classes`."""
        return int(np.count_nonzero(self.classes & np.uint8(classes)))

    @cached_property
    def num_chars(self) -> int:
        """The number of code points in the text."""
        return len(self.data) if self.is_ascii else len(self.data) - self.count(CONTINUATION)

    @cached_property
    def line_ends(self) -> NDArray[np.int64]:
        """The end of each line: the position of its "\\n", or of the text's end; int64 [num_lines]."""
        ends: NDArray[np.int64] = (np.frombuffer(self.data, np.uint8) == ord("\n")).nonzero()[0]
        if self.data and not self.data.endswith(b"\n"):
            ends = np.append(ends, len(self.data))
        return ends

    @property
    def num_lines(self) -> int:
        """The number of lines in the text."""
        return len(self.line_ends)

    @cached_property
    def line_bytes(self) -> NDArray[np.int64]:
        """The bytes of each line, never fewer than its characters; int64 [num_lines]."""
        lengths = self.line_ends.copy()
        lengths[1:] -= self.line_ends[:-1] + 1
        return lengths

    @cached_property
    def line_chars(self) -> NDArray[np.int64]:
        """The characters of each line, for ASCII the same as `line_bytes`; int64 [num_lines]."""
        if self.is_ascii:
            return self.line_bytes
        done = np.concatenate(([0], np.cumsum(self.classes & np.uint8(CONTINUATION) != 0, dtype=np.int64)))
        ends = self.line_ends
        starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
        lengths: NDArray[np.int64] = self.line_bytes - (done[ends] - done[starts])
        return lengths

    @cached_property
    def beyond_ascii(self) -> str:
        """The non-ASCII characters, in order."""
        return "" if self.is_ascii else self.data.translate(None, _ASCII).decode()

    def first_lines(self, num_lines: int, max_bytes: int = 2000) -> bytes:
        """Return the text's first lines in lower case, truncated at `max_bytes`."""
        return b"\n".join(self.data[:max_bytes].split(b"\n", num_lines)[:num_lines]).lower()
