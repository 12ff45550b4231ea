"""Replaces `if C: A else: B` by `if not C: B else: A`."""

from collections.abc import Iterator

import numpy as np
from tree_sitter import Node

from finetune.syntax import Edit, Parsed, indent_of, of_types


def swap_branches(parsed: Parsed, generator: np.random.Generator) -> Iterator[Edit]:
    """Yield the edits of every `if` with an `else` and no `elif`; of nested ones only the outer. Uses no randomness."""
    reached = -1
    for node in of_types(parsed.root, "if_statement"):
        edits = _python(parsed, node) if parsed.language == "python" else _java(parsed, node)
        if edits and node.start_byte >= reached:
            yield from edits
            reached = node.end_byte


def _python(parsed: Parsed, node: Node) -> list[Edit]:
    alternatives = node.children_by_field_name("alternative")
    if len(alternatives) != 1 or alternatives[0].type != "else_clause":
        return []
    condition, first = node.child_by_field_name("condition"), node.child_by_field_name("consequence")
    second = alternatives[0].child_by_field_name("body")
    if condition is None or first is None or second is None:
        return []
    # Blocks keep their indentation only if both have the same, or both follow their colons on the same line.
    if indent_of(parsed, first) != indent_of(parsed, second):
        return []
    return [
        Edit(condition.start_byte, condition.end_byte, f"not ({parsed.text(condition)})"),
        Edit(first.start_byte, first.end_byte, parsed.text(second).rstrip()),
        Edit(second.start_byte, second.end_byte, parsed.text(first).rstrip()),
    ]


def _java(parsed: Parsed, node: Node) -> list[Edit]:
    condition, first = node.child_by_field_name("condition"), node.child_by_field_name("consequence")
    second = node.child_by_field_name("alternative")
    if condition is None or first is None or second is None or of_types(condition, "instanceof_expression"):
        return []
    # An `if` moved directly before the `else` would capture it, so branches get their own braces.
    return [
        Edit(condition.start_byte, condition.end_byte, f"(!{parsed.text(condition)})"),
        Edit(first.start_byte, first.end_byte, _braced(parsed, second)),
        Edit(second.start_byte, second.end_byte, _braced(parsed, first)),
    ]


def _braced(parsed: Parsed, node: Node) -> str:
    return parsed.text(node) if node.type == "block" else f"{{ {parsed.text(node)} }}"
