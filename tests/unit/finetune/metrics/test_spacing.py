"""Tokens are parted, and nothing else happens to the text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetune.metrics.spacing import spaced


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
