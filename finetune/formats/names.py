"""Names taken out of code, so that a search cannot go by shared words.

Retrieval of code by code is easily won by names alone: where one author wrote both sides, TF-IDF finds nearly all. What
a system finds once names are masked is what it knows of the code.
"""

import re
from collections.abc import Iterator
from typing import Literal

from tree_sitter import Node

from finetune.languages import grammar_name
from finetune.syntax import Edit, Parsed, parse, walk

Names = Literal["kept", "own_masked", "all_masked"]
"""`own_masked`: names of functions and classes that a text defines; `all_masked`: every identifier, and what stands in
strings and comments."""

_WORD = re.compile(r"[^\W\d]\w*")
_DEFINES = re.compile(r"^(function|method|class|constructor|interface|struct|module|local_function)(_\w+)?$")
_SAID = re.compile(
    r"(string_fragment|string_content|string_literal_content|interpreted_string_literal_content|comment)$"
)


def masked(code: str, language: str, names: Names) -> tuple[str, bool]:
    """The code with a placeholder for every name that is to go, and whether it could be parsed.

    Placeholders are numbered in letters by first occurrence and begin with the language's name, so two languages share
    none. In a text that does not parse every word is masked, keywords too.
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
        # With an x, because no keyword begins so.
        self._prefix = "".join(filter(str.isalpha, grammar_name(language))) + "x"
        self._known: dict[str, str] = {}

    def of(self, name: str) -> str:
        return self._known.setdefault(name, self._prefix + _letters(len(self._known)))


def _letters(number: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
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
    """The name a definition gives; C and C++ have it at the bottom of declarators."""
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
