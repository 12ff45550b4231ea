"""Masking of names in code, so that retrieval cannot rely on shared words.

Names alone nearly solve code-to-code retrieval if one author wrote both sides: TF-IDF then finds almost every match.
Retrieval with masked names measures what a system knows of the code itself.
"""

import re
from collections.abc import Iterator
from typing import Literal

from tree_sitter import Node

from finetune.languages import grammar_name
from finetune.syntax import Edit, Parsed, parse, walk

Names = Literal["kept", "own_masked", "all_masked"]
"""Which names are masked.

`own_masked`: the names of functions and classes that a text defines. `all_masked`: every identifier; comments and the
contents of strings are removed.
"""

_WORD = re.compile(r"[^\W\d]\w*")
_DEFINES = re.compile(r"^(function|method|class|constructor|interface|struct|module|local_function)(_\w+)?$")
_SAID = re.compile(
    r"(string_fragment|string_content|string_literal_content|interpreted_string_literal_content|comment)$"
)


def masked(code: str, language: str, names: Names) -> tuple[str, bool]:
    """Return the code with its names replaced by placeholders, and whether it parsed.

    Placeholders start with the language's name, so that two languages share none, and are numbered in letters by first
    occurrence. If a text does not parse, every word is masked, keywords included.
    """
    if names == "kept":
        return code, True
    placeholders = _Placeholders(language)
    parsed = parse(code, language)
    if parsed is None:
        return _WORD.sub(lambda found: placeholders.of(found.group()), code), False
    own = set(_defined(parsed)) if names == "own_masked" else None
    edits = []
    for node in walk(parsed.root):
        if own is None and _SAID.search(node.type):
            edits.append(Edit(node.start_byte, node.end_byte, ""))
        elif not node.children and node.type.endswith("identifier"):
            name = parsed.text(node)
            if own is None or name in own:
                edits.append(Edit(node.start_byte, node.end_byte, placeholders.of(name)))
    return _applied(parsed, edits), True


class _Placeholders:
    def __init__(self, language: str) -> None:
        # The x makes sure that no placeholder is a keyword.
        self._prefix = "".join(filter(str.isalpha, grammar_name(language))) + "x"
        self._known: dict[str, str] = {}

    def of(self, name: str) -> str:
        return self._known.setdefault(name, self._prefix + _letters(len(self._known)))


def _letters(number: int) -> str:
    """Return the number from 0 in letters: a, b, ..., z, aa, ab, ..."""
    text = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        text = chr(ord("a") + digit) + text
    return text


def _defined(parsed: Parsed) -> Iterator[str]:
    for node in walk(parsed.root):
        if _DEFINES.match(node.type) and node.start_byte >= parsed.start:
            name = _name_of(node)
            if name is not None:
                yield parsed.text(name)


def _name_of(node: Node) -> Node | None:
    """Return the node of the name that a definition defines; C and C++ nest it within declarators."""
    found = node.child_by_field_name("name")
    below: Node | None = node
    while found is None and below is not None:
        below = below.child_by_field_name("declarator")
        if below is not None and below.type.endswith("identifier"):
            found = below
    return found if found is not None and found.type.endswith("identifier") else None


def _applied(parsed: Parsed, edits: list[Edit]) -> str:
    pieces, reached = [], parsed.start
    for edit in edits:
        if edit.start < reached or edit.end > parsed.end:
            continue
        pieces += [parsed.data[reached : edit.start], edit.text.encode()]
        reached = edit.end
    return b"".join([*pieces, parsed.data[reached : parsed.end]]).decode()
