"""Each rule drops what it is for and keeps ordinary code."""

import pytest

from data_prep.config import FiltersConfig
from data_prep.decoding import DecodedFile, decode
from data_prep.filters.registry import RULES, first_rejection

ORDINARY = "def add(first, second):\n    return first + second\n" * 5


def decoded(text: str, language: str = "Python") -> DecodedFile:
    return DecodedFile(text, text.encode(), language)


def test_ordinary_code_is_kept() -> None:
    assert first_rejection(decoded(ORDINARY), FiltersConfig()) is None


@pytest.mark.parametrize(
    ("rule", "text", "value"),
    [
        ("line_length", "x" * 1001, 1001),
        ("line_length", ORDINARY + "y = 1" + "1" * 1000, 1005),
        ("mean_line_length", ("x" * 150 + "\n") * 4, 151),
        ("alphanumeric_share", "()\n" * 50, 0),
        ("alphanumeric_share", "a###\n" * 50, 0.2),
        ("alphanumeric_share", "é###\n" * 50, 0.2),
        ("parses", ORDINARY + "print 'two'\n", 11),
        ("parses", "x = '\0'\n", 0),
        ("parses", "(" * 5000 + ")" * 5000, None),
        ("parses", "x = " + "-" * 100_000 + "1", None),
    ],
)
def test_rule_drops_with_its_value(rule: str, text: str, value: float | None) -> None:
    found = RULES[rule](decoded(text), FiltersConfig())
    assert found is not None
    if value is not None:
        assert found == pytest.approx(value)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("line_length", "x" * 1000 + "\n"),
        ("line_length", "é" * 1000),  # 2000 bytes, 1000 characters
        ("mean_line_length", ("x" * 99 + "\n") * 4),
        ("mean_line_length", ""),
        ("alphanumeric_share", "a##\n" * 50),
        ("alphanumeric_share", "é##\n" * 50),
    ],
)
def test_rule_keeps_at_its_limit(rule: str, text: str) -> None:
    assert RULES[rule](decoded(text), FiltersConfig()) is None


def test_parsing_can_be_switched_off_and_is_for_python_only() -> None:
    broken = "print 'two'\n"
    assert RULES["parses"](decoded(broken), FiltersConfig(parses=False)) is None
    assert RULES["parses"](decoded(broken, "Go"), FiltersConfig()) is None


def test_invalid_escapes_do_not_warn() -> None:
    assert RULES["parses"](decoded("x = '\\d'\n"), FiltersConfig()) is None


def test_declared_encoding_mark_and_line_ends() -> None:
    latin = decode("# -*- coding: latin-1 -*-\nname = 'é'\n".encode("latin-1"), "Python")
    assert latin is not None
    assert "é" in latin.text
    marked = decode(b"\xef\xbb\xbfx = 1\r\ny = 2\rz = 3\n", "Python")
    assert marked is not None
    assert marked.text == "x = 1\ny = 2\nz = 3\n"
    assert marked.data == marked.text.encode()


@pytest.mark.parametrize(
    "raw",
    [
        b"x = '\xff'\n",
        b"# coding: no-such-codec\n",
        b"# coding: rot13\n",
        b"# coding: unicode_escape\nx = '\\ud800'\n",
    ],
)
def test_undecodable_python(raw: bytes) -> None:
    assert decode(raw, "Python") is None


def test_declarations_are_python_only() -> None:
    assert decode(b"// coding: latin-1\n\xe9", "Go") is None
