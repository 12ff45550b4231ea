"""Originals of the test texts that a task has changed (names masked, docstrings removed, a part of the file).

The overlap search uses them, because the changed text is not in the corpus.
"""

import re

# Words as in `data_prep.text.shingles`.
_WORD = r"[0-9A-Za-z_\x80-\U0010ffff]+"
_LAST_WORD, _FIRST_WORD = re.compile(rf"{_WORD}\Z"), re.compile(rf"\A{_WORD}")


class Published:
    """A map from each text that a task made to its originals in the task's files; several originals may share one."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, None]] = {}

    def note(self, made: str, published: str) -> str:
        """Record that `made` comes from `published`, and return `made`."""
        self._found.setdefault(made, {})[published] = None
        return made

    def changed(self) -> dict[str, tuple[str, ...]]:
        """Return the originals of each changed text; unchanged texts are left out."""
        return {made: tuple(found) for made, found in self._found.items() if tuple(found) != (made,)}


def whole_words(text: str, first: int, end: int) -> str:
    """Return characters `first` to `end` of the text, without the words that are cut at either end."""
    part = text[first:end]
    if _FIRST_WORD.match(text[end : end + 1]):
        part = _LAST_WORD.sub("", part)
    if first and _LAST_WORD.match(text[first - 1 : first]):
        part = _FIRST_WORD.sub("", part)
    return part
