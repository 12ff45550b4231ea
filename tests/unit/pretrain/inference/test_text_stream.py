"""Streamed text is what was written, never a broken character, never part of a stop string."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pretrain.inference.text_stream import TextStream


class ByteTokenizer:
    """Every token is one byte."""

    def decode_bytes(self, ids: list[int]) -> bytes:
        return bytes(ids)


def streamed(data: bytes, stop: Sequence[str | bytes]) -> tuple[TextStream, list[str]]:
    reported: list[str] = []
    stream = TextStream(ByteTokenizer(), stop, reported.append)  # type: ignore[arg-type]
    for byte in data:
        if stream.add(byte):
            break
    stream.close()
    return stream, reported


@settings(max_examples=200, deadline=None)
@given(st.text("abé\n", max_size=30), st.lists(st.text("abé\n", min_size=1, max_size=4), max_size=2))
def test_what_is_emitted_is_the_text_before_the_first_stop_string(text: str, stop: list[str]) -> None:
    stream, reported = streamed(text.encode(), stop)
    # The stop string that is complete first ends the text, where it begins.
    ends = [(text.find(one) + len(one), text.find(one)) for one in stop if one in text]
    first_end = min((end for end, _ in ends), default=None)
    wanted = text if first_end is None else text[: min(start for end, start in ends if end == first_end)]
    assert "".join(reported) == stream.text == wanted
    assert stream.data == wanted.encode()


@given(st.binary(max_size=20).map(lambda data: bytes(97 + byte % 2 for byte in data)), st.data())
def test_no_more_is_held_back_than_may_become_a_stop_string(data: bytes, drawn: st.DataObject) -> None:
    stop = drawn.draw(st.lists(st.sampled_from([b"ab", b"aab", b"abab", b"bbbba", b"abbabb"]), max_size=3))
    stream = TextStream(ByteTokenizer(), stop)  # type: ignore[arg-type]
    for number, byte in enumerate(data, 1):
        if stream.add(byte):
            return
        held = max((n for one in stop for n in range(len(one)) if data[:number].endswith(one[:n])), default=0)
        assert stream.final_data == data[: number - held]


def test_a_character_is_emitted_when_it_is_whole() -> None:
    reported: list[str] = []
    stream = TextStream(ByteTokenizer(), on_text=reported.append)  # type: ignore[arg-type]
    for byte in "é€".encode():
        stream.add(byte)
    assert reported == ["é", "€"]


@pytest.mark.parametrize("data", [b"\xff", b"a\xc3", b"\x80b"])
def test_broken_utf8_is_replaced_in_the_text_and_kept_in_the_data(data: bytes) -> None:
    stream, _ = streamed(data, [])
    assert stream.data == data
    assert stream.text == data.decode(errors="replace")


def test_the_beginning_of_a_stop_string_is_held_back_until_it_is_none() -> None:
    reported: list[str] = []
    stream = TextStream(ByteTokenizer(), ["end"], reported.append)  # type: ignore[arg-type]
    for byte in b"ene":
        stream.add(byte)
    assert reported == ["en"]
    stream.close()
    assert reported == ["en", "e"]


def test_a_stop_string_may_be_bytes_that_are_no_text() -> None:
    stream, _ = streamed(b"ab\xffcd", [b"\xffc"])
    assert stream.data == b"ab"
