"""Measurements of a text agree with plain counting."""

from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.text.file import (
    ALPHANUMERIC,
    BASE64,
    CONTROL,
    HEX_DIGIT,
    LETTER,
    WHITESPACE,
    TextFile,
)

TEXTS = st.text(st.characters(exclude_categories=("Cs",)) | st.sampled_from("\n\n\n aé日\t"), max_size=120)


@given(TEXTS)
@settings(max_examples=100)
def test_lines_and_characters_are_those_of_the_text(text: str) -> None:
    file = TextFile(text.encode(), "a.py", "Python")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    assert file.text == text
    assert file.num_chars == len(text)
    assert file.num_lines == len(lines)
    assert file.line_chars.tolist() == [len(line) for line in lines]
    assert file.line_bytes.tolist() == [len(line.encode()) for line in lines]
    assert file.beyond_ascii == "".join(character for character in text if character > "\x7f")


@given(TEXTS)
@settings(max_examples=60)
def test_classes_are_those_of_the_ascii_characters(text: str) -> None:
    file = TextFile(text.encode(), "a.py", "Python")
    ascii_text = [character for character in text if character < "\x80"]
    assert file.count(LETTER) == sum(map(str.isalpha, ascii_text))
    assert file.count(ALPHANUMERIC) == sum(map(str.isalnum, ascii_text))
    assert file.count(HEX_DIGIT) == sum(character in "0123456789abcdefABCDEF" for character in ascii_text)
    assert file.count(BASE64) == sum(c.isalnum() or c in "+/=\n" for c in ascii_text)
    assert file.count(WHITESPACE) == sum(map(str.isspace, ascii_text))
    assert file.count(CONTROL) == sum(
        (c < " " and c not in "\t\n\v\f\r\b\x1b") or c == "\x7f" for c in ascii_text
    )


def test_first_lines_are_cut_and_lowered() -> None:
    file = TextFile(b"ONE\nTwo\nThree\n", "a", None)
    assert file.first_lines(2) == b"one\ntwo"
    assert file.first_lines(9, max_bytes=5) == b"one\nt"
    assert file.name == "a"
