"""Datasets spell languages in their own ways."""

import pytest

from data_prep.text.language_names import BY_EXTENSION
from data_prep.text.told_languages import known_language


@pytest.mark.parametrize(
    ("told", "language"),
    [
        ("python", "Python"),
        ("Python", "Python"),
        ("c-sharp", "C#"),
        ("c++", "C++"),
        ("cpp", "C++"),
        ("c", "C"),
        ("go", "Go"),
        ("golang", "Go"),
        ("javascript", "JavaScript"),
        ("js", "JavaScript"),
        ("jupyter-notebook", "Jupyter Notebook"),
        ("Jupyter_Notebook", "Jupyter Notebook"),
        ("typescript", "TypeScript"),
        ("shell", "Shell"),
        ("objective-c", "Objective-C"),
        ("Klingon", None),
        ("", None),
    ],
)
def test_spellings_of_datasets(told: str, language: str | None) -> None:
    assert known_language(told) == language


def test_every_name_of_ours_is_its_own() -> None:
    assert all(known_language(name) == name for name in BY_EXTENSION.values())
