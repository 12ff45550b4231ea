"""A model's text on standard output."""

import io
import sys

import pytest

from pipeline.commands.text_output import TextOutput


class _Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", "def ?() ?"), ("latin-1", "def é() ?"), ("utf-8", "def é() 日")]
)
def test_a_terminal_shows_what_its_encoding_has(
    encoding: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", _Terminal(written, encoding=encoding))
    output = TextOutput()
    output.write("def é".encode())
    output.write_text("() 日")
    output.end_line()
    assert written.getvalue() == f"{shown}\n".encode(encoding)
