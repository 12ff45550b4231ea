"""Names that our own tables do not know are looked up in a kept library."""

import pytest

from data_prep.text.language_names import BY_EXTENSION
from data_prep.text.languages import detect_language
from data_prep.text.rare_languages import rare_language


@pytest.mark.parametrize(
    ("path", "language"),
    [
        ("a/solver.ampl.mos", "Mosel"),
        ("robot.mq5", "MQL"),
        ("site.typoscript", "TypoScript"),
        ("query.promql", "PromQL"),
        ("tests.rakutest", "Raku"),
        ("ls.1p", "Roff Manpage"),
        ("grammar.g", None),  # eight lexers claim it
        ("crash.pytb", None),  # no code
        ("key.asc", None),
        ("x.nosuchextension", None),
    ],
)
def test_the_long_tail(path: str, language: str | None) -> None:
    assert detect_language(path, b"") == language


def test_our_own_tables_go_first() -> None:
    assert all(
        detect_language(f"x.{extension}", b"") == BY_EXTENSION[extension] for extension in ("py", "rs", "go")
    )
    assert rare_language("py") == "Python"
