"""The original text of every test text that a task has changed (names masked, docstrings removed, a part of the file).

A search of a corpus for the changed text would find nothing.
"""

import re

# Words as `data_prep.text.shingles` has them.
_WORD = r"[0-9A-Za-z_\x80-\U0010ffff]+"
_LAST_WORD, _FIRST_WORD = re.compile(rf"{_WORD}\Z"), re.compile(rf"\A{_WORD}")


class Published:
    """Texts of the files by what the task made of them; several may have become the same."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, None]] = {}

    def note(self, made: str, published: str) -> str:
        """Record that `made` comes from `published`; returns `made`."""
        self._found.setdefault(made, {})[published] = None
        return made

    def changed(self) -> dict[str, tuple[str, ...]]:
        """The originals by changed text; texts that were not changed are left out."""
        return {made: tuple(found) for made, found in self._found.items() if tuple(found) != (made,)}


def whole_words(text: str, first: int, end: int) -> str:
    """Characters `first` to `end` of the text without words that are cut there."""
    part = text[first:end]
    if _FIRST_WORD.match(text[end : end + 1]):
        part = _LAST_WORD.sub("", part)
    if first and _LAST_WORD.match(text[first - 1 : first]):
        part = _FIRST_WORD.sub("", part)
    return part
