"""Any bytes become text or a rejection; text is not changed."""

import codecs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.documents import Rejection
from data_prep.text.decoding import DecodedText, DecodingConfig, decode

POLICY = DecodingConfig()
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0\ufeff"), max_size=200)


def text_of(data: bytes, path: str = "a.c", policy: DecodingConfig = POLICY) -> DecodedText:
    found = decode(data, path, policy)
    assert isinstance(found, DecodedText), found
    return found


def normalised(text: str) -> bytes:
    return text.replace("\r\n", "\n").replace("\r", "\n").encode()


@given(
    st.binary(max_size=300) | st.text(max_size=50).map(lambda text: text.encode("utf-16", "surrogatepass"))
)
@settings(max_examples=100)
def test_any_bytes_give_clean_text_or_a_rejection(data: bytes) -> None:
    found = decode(data, "a.py", POLICY)
    if isinstance(found, Rejection):
        assert found.rule in ("binary", "decodable")
    else:
        assert b"\0" not in found.data
        assert b"\r" not in found.data
        found.data.decode()


@given(TEXT)
@settings(max_examples=60)
def test_utf8_text_survives(text: str) -> None:
    data = text.encode()
    found = decode(data, "a.c", POLICY)
    if isinstance(found, DecodedText):  # a text may begin with a binary format's magic
        assert found.data == normalised(text)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@given(text=TEXT)
@settings(max_examples=30)
def test_marked_text_survives_without_its_mark(encoding: str, text: str) -> None:
    mark = "\ufeff".encode(encoding)
    # A UTF-16 text that begins with NULs would be UTF-32's mark; ours holds none.
    found = text_of(mark + text.encode(encoding))
    assert found.data == normalised(text)
    assert "bom" in found.flags


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_unmarked_utf16_is_detected_by_its_nuls(encoding: str) -> None:
    found = text_of("int main() { return 0; } // naïve\n".encode(encoding))
    assert found == DecodedText("int main() { return 0; } // naïve\n".encode(), ("utf16",))


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"text with one \0 in it, longer than the other half", "binary"),
        (b"\x89PNG\r\n\x1a\n and so on", "binary"),
        (b"%PDF-1.4 all in letters", "binary"),
        (bytes(range(256)), "binary"),
        (b"\0" * 64, "binary"),
        (codecs.BOM_UTF16_LE + b"\x00\xd8a", "decodable"),
        (codecs.BOM_UTF8 + b"\xff", "decodable"),
        (codecs.BOM_UTF8 + b"a\0b", "binary"),
        ("日本語のコメントです".encode("shift_jis"), "decodable"),
        ("中文注释在这里".encode("gbk"), "decodable"),
        ("комментарий".encode("koi8-r"), "decodable"),
        ("комментарий".encode("cp1251"), "decodable"),
        ("// pokaż błąd, proszę".encode("iso8859-2"), "decodable"),
    ],
)
def test_bytes_that_are_no_text_are_rejected(data: bytes, rule: str) -> None:
    found = decode(data, "a.c", POLICY)
    assert isinstance(found, Rejection)
    assert found.rule == rule


def test_latin1_is_decoded_or_dropped_as_configured() -> None:
    data = "/* © 1998 José Müller, 20° */".encode("latin-1")
    assert text_of(data) == DecodedText("/* © 1998 José Müller, 20° */".encode(), ("latin1",))
    found = decode(data, "a.c", DecodingConfig(latin1="drop"))
    assert found == Rejection("decodable", 3.0)


def test_encoding_declarations_are_used_in_python_only() -> None:
    data = "# -*- coding: koi8-r -*-\nname = 'переменная'\n".encode("koi8-r")
    assert text_of(data, "a.py") == DecodedText(data.decode("koi8-r").encode(), ("declared",))
    assert isinstance(decode(data, "a.rb", POLICY), Rejection)


@pytest.mark.parametrize(
    "name", ["no-such-codec", "rot13", "unicode_escape", "punycode", "utf-7", "hex", "ascii"]
)
def test_useless_declarations_are_ignored(name: str) -> None:
    data = f"# coding: {name}\nx = 'é'\n".encode()
    assert text_of(data, "a.py").data == data


def test_line_ends_are_normalised_and_form_feeds_stay() -> None:
    assert text_of(b"a\r\nb\rc\n\rd\x0ce\xe2\x80\xa8f") == DecodedText(
        b"a\nb\nc\n\nd\x0ce\xe2\x80\xa8f", ("crlf",)
    )


@pytest.mark.parametrize("control", ["\u202a", "\u202e", "\u2066", "\u2069"])
def test_bidirectional_controls_are_flagged(control: str) -> None:
    assert text_of(f"x = 1 # {control}".encode()).flags == ("bidi",)


@pytest.mark.parametrize("control", ["\u2028", "\u202f", "\u2065", "é"])
def test_other_characters_are_not_flagged(control: str) -> None:
    assert text_of(f"x = 1 # {control}".encode()).flags == ()


def test_plain_text_is_not_copied() -> None:
    data = b"x = 1\n" * 100
    assert text_of(data).data is data
