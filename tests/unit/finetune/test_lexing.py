"""Lexemes: what is one, where it lies."""

import io
import keyword
import re
import tokenize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetune.lexing import LexemeClass, grammar_lexemes, python_lexemes

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


_SHORT = {
    LexemeClass.IDENTIFIER: "i",
    LexemeClass.KEYWORD: "k",
    LexemeClass.OPERATOR: "o",
    LexemeClass.LITERAL: "l",
}


def lexed(text: str, language: str) -> list[tuple[str, str]]:
    found = grammar_lexemes(text, language)
    data = text.encode()
    assert all(data[one.start_byte : one.end_byte].decode() == one.text for one in found)
    return [(one.text, _SHORT[one.kind]) for one in found]


def test_a_java_method_alone_with_comments_strings_and_generics() -> None:
    text = 'int größe(List<List<Int>> a) { /* no */ return "a\\" b".length() + \'c\' + 0x1F; // no\n}'
    assert lexed(text, "Java") == [
        ("int", "k"), ("größe", "i"), ("(", "o"), ("List", "i"), ("<", "o"), ("List", "i"), ("<", "o"), ("Int", "i"),
        (">", "o"), (">", "o"), ("a", "i"), (")", "o"), ("{", "o"), ("return", "k"), ('"a\\" b"', "l"), (".", "o"),
        ("length", "i"), ("(", "o"), (")", "o"), ("+", "o"), ("'c'", "l"), ("+", "o"), ("0x1F", "l"), (";", "o"),
        ("}", "o"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("C#", 'string s = $"a{x}b" + null;', 'k:string i:s o:= l:$"a{x}b" o:+ k:null o:;'),
        ("javascript", "const a = `t${x}u`.b ?? /r/g // c", "k:const i:a o:= l:`t${x}u` o:. i:b o:?? l:/r/g"),
        ("go", "package a\nvar b = 'c' + `d`", "k:package i:a k:var i:b o:= l:'c' o:+ l:`d`"),
        ("typescript", "let a: string[] = []", "k:let i:a o:: k:string o:[ o:] o:= o:[ o:]"),
        ("rust", 'fn f() { g!("a {}", 1u8) }', 'k:fn i:f o:( o:) o:{ i:g o:! o:( l:"a {}" o:, l:1u8 o:) o:}'),
    ],
)  # fmt: skip
def test_other_languages(language: str, text: str, expected: str) -> None:
    assert " ".join(f"{kind}:{one}" for one, kind in lexed(text, language)) == expected


def test_languages_have_the_names_that_corpora_give_them() -> None:
    assert lexed("echo $x", "Shell") == lexed("echo $x", "bash")
    assert [one for one, _ in lexed("echo hi", "Shell")] == ["echo", "hi"]
    assert lexed("int x;", "Objective-C") == [("int", "k"), ("x", "i"), (";", "o")]


def test_line_ends_and_blanks_that_grammars_count_to_tokens_are_none() -> None:
    assert [one for one, _ in lexed("FROM x\nRUN y\n", "dockerfile")] == ["FROM", "x", "RUN", "y"]
    assert lexed("#define A 1 /* c */\nint b;", "C")[:3] == [("#define", "k"), ("A", "i"), ("1", "l")]


def test_what_has_a_syntax_error_has_no_lexemes() -> None:
    assert lexed("int f( {", "java") == []
    assert lexed("int f() { }", "no such language") == []


@given(
    st.lists(
        st.sampled_from(['"a b"', "x", "1.5", "'c'", "f(x)", "a[2]", "/* c */ y", "new T()"]), min_size=1
    )
)
def test_lexemes_are_the_text_without_comments_and_white_space(parts: list[str]) -> None:
    text = f"void f() {{ g({', '.join(parts)}); }}"
    kept = re.sub(r"/\*.*?\*/", "", text)
    strings_kept = "".join(one for one, _ in lexed(text, "java"))
    assert re.sub(r"\s", "", strings_kept) == re.sub(r"\s", "", kept)


def test_lifetimes_and_labels_of_rust_are_names() -> None:
    code = "fn f<'a>(x: &'a str) -> &'a str { 'outer: loop { break 'outer; } let c = 'c'; x }"
    found = [(one.text, one.kind) for one in grammar_lexemes(code, "Rust") if "'" in one.text]
    names = [(name, LexemeClass.IDENTIFIER) for name in ("'a", "'a", "'a", "'outer", "'outer")]
    assert found == [*names, ("'c'", LexemeClass.LITERAL)]
