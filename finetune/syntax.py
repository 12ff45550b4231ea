"""Syntax trees of functions and files, and edits of their bytes, for transforms, generated bugs and derived tasks."""

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
# A method alone is no program in these languages; it is parsed within a class.
_WRAPPER = {"java": (b"class W__ {\n", b"\n}\n"), "csharp": (b"class W__ {\n", b"\n}\n")}


@dataclass(frozen=True)
class Parsed:
    """A text without syntax errors. `data` may hold a wrapper around it: `start` and `end` are the text's."""

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
    """Bytes [start, end) of the parsed data become `text`."""

    start: int
    end: int
    text: str


def parse(code: str, language: str) -> Parsed | None:
    """Parse the text; None when it has a syntax error, has no grammar, or is too long or too deep to read."""
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
    """The text with the edits made; None when it no longer parses, or nothing changed but white space.

    None also for edits that overlap or reach into the wrapper: half of what belongs together would be made.
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
    """The node and everything below it, in the order of the text."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(node.children)


def of_types(node: Node, *types: str) -> list[Node]:
    """Nodes of these types at or below `node`."""
    return [one for one in walk(node) if one.type in types]


def inside(node: Node, types: Iterable[str], below: Node | None = None) -> bool:
    """Return whether the node stands within one of these types, looking up as far as `below`."""
    wanted, parent = set(types), node.parent
    while parent is not None and parent != below:
        if parent.type in wanted:
            return True
        parent = parent.parent
    return False


def indent_of(parsed: Parsed, node: Node) -> str | None:
    """The white space before a node that begins its line; None when something else stands there."""
    line_start = parsed.data.rfind(b"\n", 0, node.start_byte) + 1
    before = parsed.data[max(line_start, parsed.start) : node.start_byte].decode()
    return before if not before.strip() else None


def prose_lines(text: str, language: str) -> frozenset[int]:
    """Numbers from 0 of the lines that begin within a comment or a string, docstrings included.

    None where the text does not parse.
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
    # Not at the top: the package brings 170 grammars.
    from tree_sitter_language_pack import get_language

    name: str = language
    try:
        return Parser(get_language(name))  # type: ignore[arg-type]
    except LookupError:
        return None


def _too_deep(data: bytes) -> bool:
    """The parser's error recovery takes minutes on thousands of brackets open at once."""
    step = _BRACKETS[np.frombuffer(data, np.uint8)]
    return int(np.cumsum(step, dtype=np.int64).max(initial=0)) > _MAX_OPEN_BRACKETS
