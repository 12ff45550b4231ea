"""Tokens are parted, and nothing else happens to the text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetune.metrics.spacing import spaced, structured_python


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("x=a.b[1:]\n", "x = a . b [ 1 : ]\n"),
        ("if x :\n    return -1.5\n", "if x :\n    return - 1.5\n"),
        ("f('a b')", "f ( ' a b ' )"),
        ("", ""),
        # Broken code, and what is no code at all.
        ("def f(:\n  x=", "def f ( :\n  x ="),
    ],
)
def test_tokens_are_parted(code: str, wanted: str) -> None:
    assert spaced(code, "python") == wanted


@given(st.text(alphabet="ab1 \n\t()[]=+-.:'\"#é", max_size=60))
def test_white_space_is_all_that_is_added(code: str) -> None:
    found = spaced(code, "python")
    assert "".join(found.split()) == "".join(code.split())
    assert found.count("\n") == code.count("\n")


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        (
            "    for x in y:\n        a(x)\n        b\n",
            "<indent> for x in y : <newline> <indent> a ( x ) <newline> b <newline>",
        ),
        ("for x in y:\n  a(x)\nb", "for x in y : <newline> <indent> a ( x ) <newline> <dedent> b <newline>"),
        (
            "if x:\n\tif y:\n\t\tz\nw",
            "if x : <newline> <indent> if y : <newline> <indent> z <newline> <dedent> <dedent> w <newline>",
        ),
        ("f(a,\n\n      b)\nc", "f ( a , b ) <newline> c <newline>"),
        ("f(a))\n)\n  b(", "f ( a ) ) <newline> ) <newline> <indent> b ("),
        ("", ""),
    ],
)
def test_pythons_structure_is_kept_and_its_layout_is_not(code: str, wanted: str) -> None:
    assert structured_python(code) == wanted
