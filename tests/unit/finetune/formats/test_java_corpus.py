"""Java as the line completion set writes it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finetune.formats.published_lines import Literals, java_corpus_cuts, java_corpus_tokens

KEPT = Literals(
    strings=frozenset(("utf-8", "aU+002CU+0020b", "\\n")),
    numbers=frozenset(("0", "1L", "0x00", "1.0f")),
    characters=frozenset(("U+0020", "a", "\\n", ">")),
)


@pytest.mark.parametrize(
    ("statement", "tokens"),
    [
        ("Map<String,List<List<T>>> m=new X<>();", "Map < String , List < List < T > > > m = new X < > ( ) ;"),
        ("a = b>>2 | b>>>3; a>>=1; a >>>= 1L;",
         "a = b > > <NUM_LIT> | b > > > <NUM_LIT> ; a >>= <NUM_LIT> ; a >>>= <NUM_LIT:1L> ;"),
        ("x = 0x1F + 1L+1e3f + 0x00 - 1_000 * .5 + 0b1 + 017 + 0x1p3 + 1.0f;",
         "x = <NUM_LIT> + <NUM_LIT:1L> + <NUM_LIT> + <NUM_LIT:0x00> - <NUM_LIT> * <NUM_LIT> + <NUM_LIT> + <NUM_LIT> "
         "+ <NUM_LIT> + <NUM_LIT:1.0f> ;"),
        ("f(-1, -0);", "f ( - <NUM_LIT> , - <NUM_LIT:0> ) ;"),
        ("c = ' '; c = 'a'; c = 'b'; c = '>'; c = '\"';",
         "c = '<CHAR_LIT:U+0020>' ; c = '<CHAR_LIT:a>' ; c = '<CHAR_LIT>' ; c = '<CHAR_LIT:>>' ; c = '<CHAR_LIT>' ;"),
        # Two characters in the source are no character to the published set.
        (r"c = '\n'; c = '\''; c = '\u0041';", r"c = '<STR_LIT:\n>' ; c = '<STR_LIT>' ; c = '<STR_LIT>' ;"),
        (r's = "utf-8" + "a, b" + "" + "say \"a\" // no /* no";',
         's = "<STR_LIT:utf-8>" + "<STR_LIT:aU+002CU+0020b>" + "<STR_LIT>" + "<STR_LIT>" ;'),
        ('s = """\n  say "a"; // no\n  """;', 's = "<STR_LIT>" ;'),
        ('s = """\n""" + "utf-8";', 's = "<STR_LIT>" + "<STR_LIT:utf-8>" ;'),
        ("a /* one */ = // two\n b /** ; */ ;", "a = b ;"),
        ('@SuppressWarnings ( "utf-8" ) @Override int a;',
         '@ SuppressWarnings ( "<STR_LIT:utf-8>" ) @ Override int a ;'),
        ("r = (int... a) -> X::new; b = c instanceof D<?> ? null : true;",
         "r = ( int ... a ) -> X :: new ; b = c instanceof D < ? > ? null : true ;"),
        ("é = ünï(a);", "é = ünï ( a ) ;"),
    ],
)  # fmt: skip
def test_tokens_of_statements(statement: str, tokens: str) -> None:
    assert " ".join(java_corpus_tokens(f"class A {{ void f() {{ {statement} }} }}", KEPT)) == (
        f"class A {{ void f ( ) {{ {tokens} }} }}"
    )


def test_files_and_single_methods() -> None:
    text = "// Licence\npackage a.b;\n\npublic @interface A {\r\n  /** Doc. */\n  int x() default 0;\n}\n"
    assert " ".join(java_corpus_tokens(text, KEPT)) == (
        "package a . b ; public @ interface A { int x ( ) default <NUM_LIT:0> ; }"
    )
    assert " ".join(java_corpus_tokens("public A(int b) {super(b);}\n", KEPT)) == (
        "public A ( int b ) { super ( b ) ; }"
    )


@pytest.mark.parametrize(
    "text", ["class A {", "int f(", "a = 'b;", 's = "a;', "int 1a;", "", "// only\n", "\ud800"]
)
def test_what_does_not_parse_has_no_tokens(text: str) -> None:
    assert java_corpus_tokens(text, KEPT) == []


_NAMES = st.sampled_from(["a", "b1", "Éa", "$c", "null", "this"])
_LITERALS = st.sampled_from(
    ["0", "0x1FL", "1e3f", "'x'", "'\\''", '"a b"', '"//"', '"\\""', '"""\n b "c"\n"""']
)
_EXPRESSIONS = st.recursive(
    _NAMES | _LITERALS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", ">>", ">>>", "<", ">=", "&&"]), inner).map(" ".join),
        st.tuples(inner, inner).map(lambda pair: f"f({pair[0]},{pair[1]})"),
        inner.map(lambda one: f"(Map<A, List<B<?>>>)({one})"),
        inner.map(lambda one: f"(x) -> {one}"),
    ),
    max_leaves=8,
)
_GAPS = st.sampled_from(["", " ", "\n\t", "/* c; */", "// } 'd\n", "/** @e */ "])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(_GAPS, _EXPRESSIONS, _GAPS), min_size=1, max_size=4))
def test_tokens_keep_the_characters_outside_of_literals_and_comments(
    statements: list[tuple[str, str, str]],
) -> None:
    """Literals of the source are known beforehand, so they can be written out again."""
    code = "".join(f"{before}y = {one}{after};" for before, one, after in statements)
    bare = "".join(f"y = {one};" for _, one, _ in statements)
    every = Literals(
        strings=frozenset(("aU+0020b", "//", '\\"', '\nU+0020bU+0020"c"\n', "\\'")),
        numbers=frozenset(("0", "0x1FL", "1e3f")),
        characters=frozenset("x"),
    )
    tokens = java_corpus_tokens(f"void f() {{{code}}}", every)
    assert not any(set(token) & set(" \t") for token in tokens)
    again = "".join(tokens).replace("U+0020", " ")
    for kind in ("STR", "NUM", "CHAR"):
        for value in (*every.strings, *every.numbers, *every.characters):
            value = value.replace("U+0020", " ")
            again = again.replace(f"<{kind}_LIT:{value}>", value)
    assert "_LIT" not in again
    wanted = f"void f() {{{bare}}}".replace('"""', '"')
    assert "".join(again.split()) == "".join(wanted.split())


def _texts(tokens: str, before: int = 9) -> list[str]:
    """What is to be written at each cut of tokens that stand behind `before` others."""
    all_tokens = ["import"] * before + tokens.split()
    return [" ".join(all_tokens[first:end]) for first, end in java_corpus_cuts(all_tokens)]


def test_cuts_go_on_to_the_first_end_over_what_opens() -> None:
    assert _texts("a ( b ) { c ; d }") == [
        "a ( b ) { c ;",
        "( b ) { c ;",
        "b ) { c ;",
        ") { c ;",
        "{ c ;",
        "c ;",
        # The cut before `;`, and the one before `d`. None is left for the one before `}`.
        "d }",
        "d }",
    ]


def test_cuts_before_an_end_move_on_to_the_next_token_that_is_none() -> None:
    assert _texts("a ; } } b ;") == ["a ;", "b ;", "b ;", "b ;", "b ;"]
    # What follows the last end has no end.
    assert _texts("a ; b c") == ["a ;"]
    assert _texts("; }") == _texts("a b") == _texts("") == []


def test_cuts_have_nine_tokens_before_and_47_behind_at_most() -> None:
    assert _texts("a b ;", before=7) == []
    assert _texts("a b ;", before=8) == ["b ;"]
    long = "x " * 60 + ";"
    assert [len(text.split()) for text in _texts(long)] == list(range(47, 1, -1))
