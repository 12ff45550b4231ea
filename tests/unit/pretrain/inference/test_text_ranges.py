"""Lines, columns and bytes as a user counts them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import UserError
from pretrain.inference.text_ranges import ByteRange, byte_at, bytes_of_lines, tokens_reaching_into

LINES = st.lists(st.binary(max_size=4).map(lambda line: line.replace(b"\n", b"")), min_size=1, max_size=5)


@given(LINES, st.data())
def test_lines_first_to_last_are_these_lines(lines: list[bytes], data: st.DataObject) -> None:
    text = b"".join(line + b"\n" for line in lines)
    first = data.draw(st.integers(1, len(lines)))
    last = data.draw(st.integers(first, len(lines)))
    found = bytes_of_lines(text, first, last, "x")
    assert text[found.start : found.end] == b"".join(line + b"\n" for line in lines[first - 1 : last])


def test_a_last_line_without_newline_is_a_line() -> None:
    assert bytes_of_lines(b"a\nbc", 2, 2, "x") == ByteRange(2, 4)


@pytest.mark.parametrize(
    ("text", "first", "last", "message"),
    [
        (b"a\nb\n", 2, 3, "lines 2-3 are not in x.py, which has 2 lines"),
        (b"a\nb\n", 0, 1, "1 <= FIRST"),
        (b"a\nb\n", 2, 1, "FIRST <= LAST <= 2"),
        (b"a", 2, 2, "which has 1 line:"),
    ],
)
def test_lines_outside_are_refused(text: bytes, first: int, last: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        bytes_of_lines(text, first, last, "x.py")


@given(st.text(max_size=30), st.data())
def test_a_cursor_stands_before_the_character_at_its_line_and_column(text: str, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(text)))
    before = text[:index]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    assert byte_at(text.encode(), line, column, "x") == len(before.encode())


def test_a_byte_that_is_no_utf8_counts_as_one_character() -> None:
    assert byte_at(b"\xff\xc3\xa4z\n", 1, 3, "x") == 3
    assert byte_at(b"\xff\xc3\xa4z\n", 1, 4, "x") == 4


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        (4, 1, "line 4 is outside x.py: its lines are 1 to 3"),
        (0, 1, "line 0 is outside"),
        (1, 5, "column 5 is outside line 1 of x.py: its columns, in characters, are 1 to 4"),
        (2, 0, "column 0 is outside"),
        (3, 2, "column 2 is outside line 3"),
    ],
)
def test_a_cursor_outside_is_refused(line: int, column: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        byte_at("äbc\nd\n".encode(), line, column, "x.py")


def test_a_text_without_last_newline_has_no_line_after_it() -> None:
    assert byte_at(b"a\nbc", 2, 3, "x") == 4
    with pytest.raises(UserError, match="its lines are 1 to 2"):
        byte_at(b"a\nbc", 3, 1, "x")
    assert byte_at(b"", 1, 1, "x") == 0


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.data())
def test_tokens_that_share_a_byte_are_chosen(num_bytes: list[int], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, sum(num_bytes) - 1))
    end = data.draw(st.integers(start + 1, sum(num_bytes)))
    token_of_byte = np.repeat(np.arange(len(num_bytes)), num_bytes)
    expected = np.unique(token_of_byte[start:end])
    found = tokens_reaching_into(np.array(num_bytes), ByteRange(start, end))
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("wanted", [ByteRange(3, 3), ByteRange(5, 2), ByteRange(0, 11), ByteRange(-1, 3)])
def test_bytes_outside_are_refused(wanted: ByteRange) -> None:
    with pytest.raises(UserError, match="are not in x.py, which has 10"):
        wanted.check_within(10, "x.py")
