"""Swaps neighbouring statements that are independent of each other.

Only assignments of a plain value to a local variable are swapped: names, literals, and in Java arithmetic that cannot
throw. The text does not show what a call or an attribute does. Nothing is moved within `try`, where the order of
failures could be observed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from tree_sitter import Node

from finetune.syntax import Edit, Parsed, inside, of_types, walk
from finetune.transforms.scopes import blocks, is_reflective, statements

_PYTHON_VALUES = frozenset((
    "identifier", "integer", "float", "string", "string_start", "string_content", "string_end", "escape_sequence",
    "true", "false", "none", "list", "tuple", "parenthesized_expression", "not_operator",
))  # fmt: skip
_JAVA_VALUES = frozenset((
    "identifier", "decimal_integer_literal", "hex_integer_literal", "decimal_floating_point_literal",
    "string_literal", "string_fragment", "escape_sequence", "character_literal", "true", "false", "null_literal",
    "parenthesized_expression", "unary_expression", "binary_expression",
))  # fmt: skip
_JAVA_OPERATORS = frozenset(("-", "*", "<", ">", "<=", ">=", "==", "!=", "&&", "||", "!"))
_TRY = ("try_statement", "try_with_resources_statement", "with_statement")


@dataclass(frozen=True)
class _Set:
    """A statement that assigns to variable `target` a value computed from the variables `reads`."""

    node: Node
    target: str
    reads: frozenset[str]


def permute_statements(parsed: Parsed, generator: np.random.Generator) -> Iterator[Edit]:
    """Yield edits that swap disjoint pairs of neighbours; whether pairs start at statement 1 or 2 is sampled."""
    if is_reflective(parsed):
        return
    shared = _shared_names(parsed)
    for block in blocks(parsed):
        if inside(block, _TRY):
            continue
        simple = [_plain_set(parsed, statement) for statement in statements(block)]
        number = int(generator.integers(2))
        while number + 1 < len(simple):
            first, second = simple[number], simple[number + 1]
            if first is not None and second is not None and _independent(first, second, shared):
                yield Edit(first.node.start_byte, first.node.end_byte, parsed.text(second.node))
                yield Edit(second.node.start_byte, second.node.end_byte, parsed.text(first.node))
                number += 1
            number += 1


def _independent(first: _Set, second: _Set, shared: set[str]) -> bool:
    if not shared.isdisjoint((first.target, second.target)):
        return False
    return (
        first.target != second.target
        and first.target not in second.reads
        and second.target not in first.reads
    )


def _shared_names(parsed: Parsed) -> set[str]:
    """Return the Python names whose changes other scopes may see."""
    declared = of_types(parsed.root, "global_statement", "nonlocal_statement")
    return {parsed.text(name) for node in declared for name in of_types(node, "identifier")}


def _plain_set(parsed: Parsed, statement: Node) -> _Set | None:
    if parsed.language == "python":
        node = statement.named_children[0] if statement.type == "expression_statement" else statement
        if node.type != "assignment" or node.child_by_field_name("type") is not None:
            return None
        target, value = node.child_by_field_name("left"), node.child_by_field_name("right")
    else:
        if statement.type != "local_variable_declaration":
            return None
        declarators = [child for child in statement.named_children if child.type == "variable_declarator"]
        if len(declarators) != 1:
            return None
        target, value = (
            declarators[0].child_by_field_name("name"),
            declarators[0].child_by_field_name("value"),
        )
    if target is None or value is None or target.type != "identifier" or not _is_plain(parsed, value):
        return None
    return _Set(statement, parsed.text(target), frozenset(map(parsed.text, of_types(value, "identifier"))))


def _is_plain(parsed: Parsed, value: Node) -> bool:
    allowed = _PYTHON_VALUES if parsed.language == "python" else _JAVA_VALUES
    for node in walk(value):
        if node.is_named and node.type not in allowed:
            return False
        if node.type == "unary_expression" or node.type == "binary_expression":
            operators = {parsed.text(child) for child in node.children if not child.is_named}
            if not operators <= _JAVA_OPERATORS:
                return False
    return True
