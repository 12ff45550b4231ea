"""Functions with docstrings: what is cut out, what is left out."""

import ast
from textwrap import dedent

from hypothesis import given
from hypothesis import strategies as st

from finetune.functions import SearchPair, distinct_pairs, documented_functions

MODULE = dedent('''
    import os

    @decorated(1)
    def über(a: int,
             b: str = "ß") -> int:
        """Add the   length of b
        to a.

        Second paragraph.
        """
        return a + len(b)

    class Box:
        """Not a function."""

        async def open(self):
            "Opens – slowly – the box."; self.x = 1
            def inner():
                """Inner docstring of a function."""
                return 2
            return inner

    if os.name == "nt":
        def other():
            """Only elsewhere is this found."""
            return os

    def silent():
        return 3
''')


def test_docstring_leaves_the_code_and_becomes_the_query() -> None:
    pairs = documented_functions(MODULE)
    assert [pair.query for pair in pairs] == [
        "Add the length of b to a.",
        "Opens – slowly – the box.",
        "Only elsewhere is this found.",
    ]
    assert pairs[0].code == 'def über(a: int,\n         b: str = "ß") -> int:\n    return a + len(b)'
    assert pairs[1].code.startswith("async def open(self):\n    ; self.x = 1")
    assert pairs[2].code == "def other():\n    return os"


def test_first_paragraph_ends_at_a_line_of_blanks_and_line_ends_do_not_matter() -> None:
    text = 'def f(x):\n    """One two three.\n    \n    Four.\n    """\n    return x\n'
    for newline in ("\n", "\r\n", "\r"):
        (pair,) = documented_functions(text.replace("\n", newline))
        assert pair == SearchPair("One two three.", "def f(x):\n    return x")


def test_what_does_not_parse_gives_nothing() -> None:
    assert documented_functions("def f(:\n") == []
    assert documented_functions('def f():\n    "   "\n    return 1\n') == []


def test_tiny_functions_short_queries_and_duplicates_are_left_out() -> None:
    code = "def f(x):\n    y = x\n    return y"
    pairs = [
        SearchPair("Too short", code),
        SearchPair("One line is tiny", "def f(): return 1"),
        SearchPair("Returns the same value", code),
        SearchPair("returns THE same  value", code.replace("y", "z")),
        SearchPair("Another text altogether", code.replace("    ", "  ")),
        SearchPair("Seen in the other split", code.replace("y", "v")),
        SearchPair("Kept as the second", code.replace("y", "w")),
    ]
    seen = [SearchPair("seen in the other split", "def g(): pass")]
    kept = distinct_pairs(pairs, seen=seen)
    # The code of the short-query pair is not one of the kept ones, yet its duplicate would be ambiguous.
    assert [pair.query for pair in kept] == ["Returns the same value", "Kept as the second"]


@given(st.text(alphabet="aß漢 .", min_size=1, max_size=30).filter(str.strip), st.integers(0, 3))
def test_code_without_its_docstring_is_the_function_without_it(words: str, depth: int) -> None:
    lines = ["class C:" for _ in range(depth)] + [
        "def f(x):",
        f'    """{words}"""',
        "    y = x",
        "    return y",
    ]
    text = "\n".join("    " * min(index, depth) + line for index, line in enumerate(lines)) + "\n"
    (pair,) = documented_functions(text)
    assert pair.query == " ".join(words.split())
    assert ast.dump(ast.parse(pair.code)) == ast.dump(ast.parse("def f(x):\n    y = x\n    return y"))
