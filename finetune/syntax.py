"""Syntax trees of functions and files, and byte edits of them, for transforms, generated bugs and derived tasks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from tree_sitter import Node, Parser

from finetune.languages import grammar_name

_MAX_BYTES = 200_000
_MAX_OPEN_BRACKETS = 200
_BRACKETS = np.zeros(256, np.int8)
_BRACKETS[np.frombuffer(b"([{", np.uint8)] = 1
_BRACKETS[np.frombuffer(b")]}", np.uint8)] = -1
# A method alone is not a program in these languages, so it is parsed within a class.
_WRAPPER = {"java": (b"class W__ {\n", b"\n}\n"), "csharp": (b"class W__ {\n", b"\n}\n")}


@dataclass(frozen=True)
class Parsed:
    """A text without syntax errors. `data` may contain a wrapper around it; the text is `data[start:end]`."""

    language: str
    data: bytes
    root: Node
    start: int
    end: int

    def text(self, node: Node) -> str:
        """Return the text of a node."""
        return self.data[node.start_byte : node.end_byte].decode()


@dataclass(frozen=True)
class Edit:
    """An edit that replaces bytes [start, end) of the parsed data by `text`."""

    start: int
    end: int
    text: str


def parse(code: str, language: str) -> Parsed | None:
    """Parse the text. Return None if it has a syntax error, is too long or too deeply nested, or has no grammar."""
    language = grammar_name(language)
    parser = _parser(language)
    try:
        data = code.encode()
    except UnicodeEncodeError:
        return None
    if parser is None or len(data) > _MAX_BYTES or _too_deep(data):
        return None
    root = parser.parse(data).root_node
    if not root.has_error:
        return Parsed(language, data, root, 0, len(data))
    if language in _WRAPPER:
        before, after = _WRAPPER[language]
        wrapped = before + data + after
        root = parser.parse(wrapped).root_node
        if not root.has_error:
            return Parsed(language, wrapped, root, len(before), len(before) + len(data))
    return None


def edited(parsed: Parsed, edits: Iterable[Edit]) -> str | None:
    """Return the text with the edits applied; None if it no longer parses, or only white space changed.

    Return None also if edits overlap or reach into the wrapper, because edits are applied all or none.
    """
    pieces, reached = [], parsed.start
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if edit.start < reached or edit.end > parsed.end:
            return None
        pieces += [parsed.data[reached : edit.start], edit.text.encode()]
        reached = edit.end
    new = b"".join([*pieces, parsed.data[reached : parsed.end]]).decode()
    old = parsed.data[parsed.start : parsed.end].decode()
    if new.split() == old.split() or parse(new, parsed.language) is None:
        return None
    return new


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and all its descendants, in the order of the text."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(node.children)


def of_types(node: Node, *types: str) -> list[Node]:
    """Return the nodes of these types among `node` and its descendants."""
    return [one for one in walk(node) if one.type in types]


def inside(node: Node, types: Iterable[str], below: Node | None = None) -> bool:
    """Return whether the node has an ancestor of one of these types, searching up to, but not including, `below`."""
    wanted, parent = set(types), node.parent
    while parent is not None and parent != below:
        if parent.type in wanted:
            return True
        parent = parent.parent
    return False


def indent_of(parsed: Parsed, node: Node) -> str | None:
    """Return the white space before a node that begins its line; None if other text precedes it."""
    line_start = parsed.data.rfind(b"\n", 0, node.start_byte) + 1
    before = parsed.data[max(line_start, parsed.start) : node.start_byte].decode()
    return before if not before.strip() else None


def prose_lines(text: str, language: str) -> frozenset[int]:
    """Return the 0-based numbers of the lines that begin within a comment or a string, docstrings included.

    Empty if the text does not parse.
    """
    parsed = parse(text, language)
    if parsed is None:
        return frozenset()
    skipped = parsed.data.count(b"\n", 0, parsed.start)
    found: set[int] = set()
    for node in walk(parsed.root):
        if "comment" in node.type or node.type in (
            "string",
            "string_literal",
            "text_block",
            "template_string",
        ):
            first, last = node.start_point, node.end_point
            begins_line = indent_of(parsed, node) is not None
            found.update(range(first.row + (not begins_line) - skipped, last.row + 1 - skipped))
    return frozenset(found)


@cache
def _parser(language: str) -> Parser | None:
    # Imported here because the package loads 170 grammars.
    from tree_sitter_language_pack import get_language

    name: str = language
    try:
        return Parser(get_language(name))  # type: ignore[arg-type]
    except LookupError:
        return None


def _too_deep(data: bytes) -> bool:
    """Return whether too many brackets are open at once: the parser's error recovery takes minutes on thousands."""
    step = _BRACKETS[np.frombuffer(data, np.uint8)]
    return int(np.cumsum(step, dtype=np.int64).max(initial=0)) > _MAX_OPEN_BRACKETS
