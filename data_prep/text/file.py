"""A decoded file as the rules see it: measured once, in vectors over its bytes."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

# One bit per class of bytes, so that one pass over a file serves all rules.
LETTER = 1
ALPHANUMERIC = 2
BASE64 = 4
HEX_DIGIT = 8
# What runs of hexadecimal bytes are written with.
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
        # Escapes colour terminals, backspaces overstrike: both are found in source files.
        CONTROL: code == 127 or (code < 32 and code not in b"\t\n\v\f\r\b\x1b"),
    }
    return sum(bit for bit, member in classes.items() if member)


_CLASSES = bytes(_class_of(code) for code in range(256))
_ASCII = bytes(range(128))


@dataclass(frozen=True)
class TextFile:
    """UTF-8 text with "\\n" line ends, its path in the repository and its language (None: unknown).

    A line ends with "\\n" or with the file; an empty file has no lines. Lengths are in characters (code points)
    and leave the line end out.
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
        """The text as a str; rules on bytes are far cheaper."""
        return self.data.decode()

    @cached_property
    def is_ascii(self) -> bool:
        """Whether characters are bytes."""
        return self.data.isascii()

    @cached_property
    def classes(self) -> NDArray[np.uint8]:
        """The class bits of every byte, uint8 [num_bytes]."""
        return np.frombuffer(self.data.translate(_CLASSES), np.uint8)

    def count(self, classes: int) -> int:
        """How many bytes are of any of `classes`."""
        return int(np.count_nonzero(self.classes & np.uint8(classes)))

    @cached_property
    def num_chars(self) -> int:
        """Code points in the text."""
        return len(self.data) if self.is_ascii else len(self.data) - self.count(CONTINUATION)

    @cached_property
    def line_ends(self) -> NDArray[np.int64]:
        """Where each line ends: positions of "\\n", and the end of a last line that has none; int64 [num_lines]."""
        ends: NDArray[np.int64] = (np.frombuffer(self.data, np.uint8) == ord("\n")).nonzero()[0]
        if self.data and not self.data.endswith(b"\n"):
            ends = np.append(ends, len(self.data))
        return ends

    @property
    def num_lines(self) -> int:
        """Lines in the text."""
        return len(self.line_ends)

    @cached_property
    def line_bytes(self) -> NDArray[np.int64]:
        """Bytes of each line; never fewer than its characters."""
        lengths = self.line_ends.copy()
        lengths[1:] -= self.line_ends[:-1] + 1
        return lengths

    @cached_property
    def line_chars(self) -> NDArray[np.int64]:
        """Characters of each line; for ASCII the same as `line_bytes`."""
        if self.is_ascii:
            return self.line_bytes
        done = np.concatenate(([0], np.cumsum(self.classes & np.uint8(CONTINUATION) != 0, dtype=np.int64)))
        ends = self.line_ends
        starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
        lengths: NDArray[np.int64] = self.line_bytes - (done[ends] - done[starts])
        return lengths

    @cached_property
    def beyond_ascii(self) -> str:
        """The characters beyond ASCII, in order."""
        return "" if self.is_ascii else self.data.translate(None, _ASCII).decode()

    def first_lines(self, num_lines: int, max_bytes: int = 2000) -> bytes:
        """The text's first lines, in lower case, cut at `max_bytes`."""
        return b"\n".join(self.data[:max_bytes].split(b"\n", num_lines)[:num_lines]).lower()
