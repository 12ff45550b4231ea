"""Lexemes: what is one, where it lies."""

import io
import keyword
import tokenize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetune.lexing import LexemeClass, python_lexemes

SOURCE = 'def größe(x):  # Maß\n    """Ü."""\n    if x != 1.5:\n        return f"ä{x!r:>{3}}é" + "z"\n'


def test_lexemes_leave_out_comments_line_ends_and_indentation() -> None:
    texts = [lexeme.text for lexeme in python_lexemes(SOURCE)]
    assert texts == [
        *["def", "größe", "(", "x", ")", ":", '"""Ü."""', "if", "x", "!=", "1.5", ":"],
        *["return", 'f"ä{x!r:>{3}}é"', "+", '"z"'],
    ]


def test_classes() -> None:
    kinds = {lexeme.text: lexeme.kind for lexeme in python_lexemes("for match in 3, 'a':\n    pass\n")}
    assert kinds == {
        "for": LexemeClass.KEYWORD,
        "match": LexemeClass.IDENTIFIER,
        "in": LexemeClass.KEYWORD,
        "3": LexemeClass.LITERAL,
        ",": LexemeClass.OPERATOR,
        "'a'": LexemeClass.LITERAL,
        ":": LexemeClass.OPERATOR,
        "pass": LexemeClass.KEYWORD,
    }


def test_positions_are_utf8_bytes_in_order() -> None:
    data = SOURCE.encode()
    end = 0
    for lexeme in python_lexemes(SOURCE):
        assert data[lexeme.start_byte : lexeme.end_byte].decode() == lexeme.text
        assert lexeme.start_byte >= end
        end = lexeme.end_byte


def test_what_cannot_be_lexed_has_no_lexemes() -> None:
    assert python_lexemes("x = (1,\n") == []
    assert python_lexemes("if x:\n        a\n    b\n") == []
    assert python_lexemes("") == []


NAMES = st.from_regex(r"[a-zé]{1,6}", fullmatch=True).filter(lambda name: not keyword.iskeyword(name))


@given(
    st.lists(st.tuples(NAMES, st.text(alphabet="añ漢😀 ", max_size=8)), max_size=6),
    st.sampled_from(["\n", "\r\n"]),
)
def test_same_lexemes_as_tokenize_whatever_the_characters(rows: list[tuple[str, str]], newline: str) -> None:
    text = "".join(f"{name} = '{value}'  # {value}{newline}" for name, value in rows)
    expected = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type in (tokenize.NAME, tokenize.OP, tokenize.STRING)
    ]
    lexemes = python_lexemes(text)
    assert [lexeme.text for lexeme in lexemes] == expected
    assert [text.encode()[one.start_byte : one.end_byte].decode() for one in lexemes] == expected


@pytest.mark.parametrize("text", ["x = 'abc\n", "!ls it's\nx = 1\n", "y = a ? b\n"])
def test_what_python_cannot_lex_has_no_lexemes(text: str) -> None:
    assert python_lexemes(text) == []
