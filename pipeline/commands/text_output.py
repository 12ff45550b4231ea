"""Text on its way to standard output: bytes into a pipe, on a terminal nothing that can move the cursor."""

import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import typer

from pipeline.commands.exit_codes import EXIT_BROKEN_PIPE, EXIT_INTERRUPTED

_KEPT = "\n\t"


def visible(text: str) -> str:
    """The text with every control, format and line-separating character but newline and tab spelled as <U+001B>."""
    if text.isprintable():
        return text
    return "".join(
        f"<U+{ord(char):04X}>" if char not in _KEPT and _is_unsafe(char) else char for char in text
    )


def _is_unsafe(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")


class TextOutput:
    """Standard output: bytes as they are into a file or a pipe, on a terminal only what cannot move the cursor."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        self._at_line_start = True

    def write(self, data: bytes) -> None:
        """Write a text, or the next part of one; parts end between characters."""
        if self.is_terminal:
            self.write_text(data.decode(errors="replace"))
            return
        sys.stdout.buffer.write(data)
        self._moved(data.endswith(b"\n"), bool(data))

    def write_text(self, text: str) -> None:
        """Write part of a text at once, for somebody who watches; "?" for what the terminal's encoding lacks."""
        encoding = sys.stdout.encoding
        sys.stdout.write(visible(text).encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
        self._moved(text.endswith("\n"), bool(text))

    def header(self, name: str) -> None:
        """Say what comes next, as `head` does for several files."""
        self.end_line()
        self.write(f"==> {name} <==\n".encode(errors="surrogateescape"))

    def write_all(self, texts: Sequence[tuple[str, bytes]]) -> None:
        """Write named texts: one as it is, several with their names before them."""
        for name, data in texts:
            if len(texts) > 1:
                self.header(name)
            self.write(data)
        if self.is_terminal or len(texts) > 1:
            self.end_line()

    def flush(self) -> None:
        """Let a reader see what was written so far."""
        sys.stdout.flush()

    def end_line(self) -> None:
        """Begin a line, unless at the start of one."""
        if not self._at_line_start:
            self.write(b"\n")

    def _moved(self, ends_line: bool, anything: bool) -> None:
        if anything:
            self._at_line_start = ends_line


@contextmanager
def ends_quietly() -> Iterator[None]:
    """Ctrl-C, and a reader that has seen enough as in `permcode complete ... | head`, end the block without a word."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        if sys.stdout.isatty():
            print()
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        # The interpreter flushes once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(EXIT_BROKEN_PIPE) from None


def print_lines(lines: Iterable[str]) -> None:
    """Write lines to standard output; bytes of file names that are no UTF-8 come out as they are."""
    output = TextOutput()
    for line in lines:
        output.write(f"{line}\n".encode(errors="surrogateescape"))
