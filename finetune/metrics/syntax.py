"""Syntax trees for CodeBLEU, and the subtrees that two of them share."""

from collections.abc import Iterator
from functools import lru_cache
from typing import cast

from tree_sitter import Node, Parser
from tree_sitter_language_pack import SupportedLanguage, get_parser

_COMMENTS = frozenset({"comment", "line_comment", "block_comment"})
_BARE_STRING_PARENTS = frozenset({"module", "block", "expression_statement"})

Shape = int
"""The number of a subtree's shape in a `ShapeNumbers`."""
ShapeNumbers = dict[tuple[str, tuple[tuple[str | None, Shape], ...]], Shape]


@lru_cache(maxsize=32)
def _parser(language: str) -> Parser:
    return get_parser(cast(SupportedLanguage, language))


def parse(code: str, language: str) -> Node:
    """The root of the tree; broken code has a tree too, with error nodes.

    PHP outside `<?php` is text to its grammar: the mark is put before code without it.
    """
    if language == "php" and "<?" not in code:
        code = f"<?php {code}"
    return _parser(language).parse(code.encode("utf-8", errors="replace")).root_node


def children(node: Node) -> Iterator[tuple[str | None, Node]]:
    """Each child with the name of its field, comments and Python's docstrings left out."""
    for number, child in enumerate(node.children):
        if child.type not in _COMMENTS and not _is_docstring(child):
            yield node.field_name_for_child(number), child


def _is_docstring(node: Node) -> bool:
    """A Python string that is a statement by itself."""
    if node.type == "expression_statement" and node.named_child_count == 1:
        node = node.named_children[0]
    parent = node.parent
    return node.type == "string" and parent is not None and parent.type in _BARE_STRING_PARENTS


def subtree_shapes(root: Node, numbers: ShapeNumbers) -> list[Shape]:
    """The shape of every subtree with an inner node at its top, the root's own included.

    A shape is what tree-sitter's S-expression tells: types and fields of the named nodes, not their text, and what is
    missing in broken code. Equal
    shapes have equal numbers within one `numbers`, which grows. A loop and no recursion: code may be nested deeply.
    """
    shapes: list[Shape] = []
    # A node is met twice: first its children are put before it, then its own shape is made of theirs.
    waiting: list[tuple[Node, list[tuple[str | None, Node]] | None]] = [(root, None)]
    shape_of: dict[int, Shape] = {}
    while waiting:
        node, parts = waiting.pop()
        if parts is None:
            parts = list(children(node))
            waiting.append((node, parts))
            waiting.extend((child, None) for _, child in parts)
            continue
        named = tuple(
            (field, shape_of[child.id]) for field, child in parts if child.is_named or child.is_missing
        )
        key = (f"MISSING {node.type}" if node.is_missing else node.type, named)
        shape = numbers.setdefault(key, len(numbers))
        shape_of[node.id] = shape
        if parts or node.id == root.id:
            shapes.append(shape)
    return shapes
