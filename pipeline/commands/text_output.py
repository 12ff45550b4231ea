"""Writes text to standard output: unchanged into a pipe, without control characters on a terminal."""

import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import typer

from pipeline.commands.exit_codes import EXIT_BROKEN_PIPE, EXIT_INTERRUPTED

_KEPT = "\n\t"
_UNSAFE_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")


def visible(text: str) -> str:
    """Return the text with control, format and line separator characters as <U+001B>, except newline and tab."""
    if text.isprintable():
        return text
    return "".join(
        f"<U+{ord(char):04X}>"
        if char not in _KEPT and unicodedata.category(char) in _UNSAFE_CATEGORIES
        else char
        for char in text
    )


class TextOutput:
    """Standard output: bytes unchanged into a file or a pipe, only visible characters on a terminal."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        self._at_line_start = True

    def write(self, data: bytes) -> None:
        """Write a text, or the next part of one; a part ends between characters."""
        if self.is_terminal:
            self.write_text(data.decode(errors="replace"))
            return
        sys.stdout.buffer.write(data)
        self._note_position(data.endswith(b"\n"), bool(data))

    def write_text(self, text: str) -> None:
        """Write and flush part of a text; characters that the terminal's encoding lacks become "?"."""
        encoding = sys.stdout.encoding
        sys.stdout.write(visible(text).encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
        self._note_position(text.endswith("\n"), bool(text))

    def header(self, name: str) -> None:
        """Write a header line with a name, as `head` does for several files."""
        self.end_line()
        self.write(f"==> {name} <==\n".encode(errors="surrogateescape"))

    def write_all(self, texts: Sequence[tuple[str, bytes]]) -> None:
        """Write named texts: a single one unchanged, several with a header each."""
        for name, data in texts:
            if len(texts) > 1:
                self.header(name)
            self.write(data)
        if self.is_terminal or len(texts) > 1:
            self.end_line()

    def flush(self) -> None:
        """Flush what was written so far."""
        sys.stdout.flush()

    def end_line(self) -> None:
        """End the current line, unless it is empty."""
        if not self._at_line_start:
            self.write(b"\n")

    def _note_position(self, ends_line: bool, has_text: bool) -> None:
        if has_text:
            self._at_line_start = ends_line


@contextmanager
def ends_quietly() -> Iterator[None]:
    """End the block silently on Ctrl-C, and when the reader closes the pipe (`permcode complete ... | head`)."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        if sys.stdout.isatty():
            print()
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        # The interpreter flushes once more at exit and would print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(EXIT_BROKEN_PIPE) from None


def print_lines(lines: Iterable[str]) -> None:
    """Write lines to standard output; bytes of file names that are not UTF-8 are written unchanged."""
    output = TextOutput()
    for line in lines:
        output.write(f"{line}\n".encode(errors="surrogateescape"))
