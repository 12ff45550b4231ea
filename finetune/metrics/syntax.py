"""Syntax trees for CodeBLEU, and the shapes of their subtrees."""

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
    """Parse the code and return the root; for code with syntax errors, the tree contains error nodes.

    PHP's grammar parses code outside `<?php` as plain text, so that tag is added if the code has no `<?`.
    """
    if language == "php" and "<?" not in code:
        code = f"<?php {code}"
    return _parser(language).parse(code.encode("utf-8", errors="replace")).root_node


def children(node: Node) -> Iterator[tuple[str | None, Node]]:
    """Yield each child with the name of its field, except comments and Python's docstrings."""
    for number, child in enumerate(node.children):
        if child.type not in _COMMENTS and not _is_docstring(child):
            yield node.field_name_for_child(number), child


def _is_docstring(node: Node) -> bool:
    """Return whether the node is a Python string that is a statement by itself."""
    if node.type == "expression_statement" and node.named_child_count == 1:
        node = node.named_children[0]
    parent = node.parent
    return node.type == "string" and parent is not None and parent.type in _BARE_STRING_PARENTS


def subtree_shapes(root: Node, numbers: ShapeNumbers) -> list[Shape]:
    """Return the shape of every subtree whose root is an inner node, and of the whole tree.

    A shape has the information of tree-sitter's S-expression: types and fields of the named nodes, without their text,
    and the missing nodes of code with syntax errors. Equal shapes have equal numbers within one `numbers`, which is
    extended. The traversal is iterative, because code may be nested deeply.
    """
    shapes: list[Shape] = []
    # A node is popped twice: first its children are pushed, then its shape is built from theirs.
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
