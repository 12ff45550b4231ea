"""Datasets use different names for the same language."""

import pytest

from data_prep.text.language_aliases import canonical_language
from data_prep.text.language_names import BY_EXTENSION


@pytest.mark.parametrize(
    ("name", "language"),
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
def test_spellings_of_datasets(name: str, language: str | None) -> None:
    assert canonical_language(name) == language


def test_every_name_of_ours_maps_to_itself() -> None:
    assert all(canonical_language(name) == name for name in BY_EXTENSION.values())
