"""Literals as CodeXGLUE's line completion writes them: frequent values are kept, all others left out."""

from dataclasses import dataclass
from pathlib import Path

from cluster.errors import UserError
from finetune.formats.files import read_text
from finetune.formats.jsonl import parse_json


@dataclass(frozen=True)
class Literals:
    """Those that keep their value (`<NUM_LIT:1>`); all others become `<STR_LIT>`, `<NUM_LIT>` and `<CHAR_LIT>`."""

    strings: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    characters: frozenset[str] = frozenset()

    def string(self, content: str) -> str:
        """Of what stands between the quotes."""
        return _written("STR", _without_separators(content), self.strings)

    def character(self, content: str) -> str:
        """Of the one character between the quotes."""
        return _written("CHAR", _without_separators(content), self.characters)

    def number(self, text: str) -> str:
        """Of a number, as it is written."""
        return _written("NUM", text, self.numbers)


def read_literals(path: Path) -> Literals:
    """CodeXGLUE's `literals.json`. UserError when the file is another one."""
    found = parse_json(read_text(path), str(path))
    # Languages without character literals need no list of them.
    lists = {"char": [], **found} if isinstance(found, dict) else {}
    strings, numbers, characters = (_texts(lists.get(name)) for name in ("str", "num", "char"))
    if strings is None or numbers is None or characters is None:
        raise UserError(
            f"{path} must have lists 'str' and 'num' (and for Java 'char') of texts: "
            "it must be CodeXGLUE's literals.json"
        )
    return Literals(strings, numbers, characters)


def _texts(found: object) -> frozenset[str] | None:
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        return None
    return frozenset(found)


def _without_separators(content: str) -> str:
    return content.replace(" ", "U+0020").replace(",", "U+002C")


def _written(kind: str, value: str, kept: frozenset[str]) -> str:
    return f"<{kind}_LIT:{value}>" if value in kept else f"<{kind}_LIT>"
