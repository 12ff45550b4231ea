"""Tables for `dataflow`: the nodes of each tree-sitter grammar that set names, branch and loop."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tree_sitter import Node

_STRINGS = frozenset(
    {
        "string",
        "string_literal",
        "character_literal",
        "char_literal",
        "rune_literal",
        "verbatim_string_literal",
        "raw_string_literal",
        "interpreted_string_literal",
        "encapsed_string",
    }
)
"""Literals that count as one token, even if the grammar splits them."""


@dataclass(frozen=True)
class Setting:
    """A node type that sets names: the fields of its two sides, and of its body if it is a loop."""

    left: str
    right: str | None
    """None means the last named child, if it is not the left side."""
    relation: Literal["comesFrom", "computedFrom"]
    body: str | None = None

    def sides(self, node: Node) -> tuple[Node | None, Node | None]:
        """Return the node that is set, and the node that it is set to."""
        left = node.child_by_field_name(self.left)
        if self.right is not None:
            return left, node.child_by_field_name(self.right)
        last = node.named_children[-1] if node.named_child_count else None
        return left, None if last == left else last


@dataclass(frozen=True)
class Grammar:
    """The node types of a language by their effect on data flow."""

    settings: Mapping[str, Setting]
    branches: frozenset[str]
    loops: frozenset[str]
    updates: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()
    """Left and right sides whose elements are set one by one."""
    followed_first: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset({"identifier"})
    """Leaves that are names; other leaves are literals and types."""
    whole: frozenset[str] = field(default=_STRINGS)
    """Nodes with children that count as one leaf."""

    def is_leaf(self, node: Node) -> bool:
        """Return whether a node is one name or literal."""
        return node.child_count == 0 or node.type in self.whole


_DECLARED = Setting("name", "value", "comesFrom")
_ASSIGNED = Setting("left", "right", "computedFrom")
_EACH = Setting("left", "right", "computedFrom", body="body")

GRAMMARS: dict[str, Grammar] = {
    "java": Grammar(
        settings={
            "variable_declarator": _DECLARED,
            "assignment_expression": _ASSIGNED,
            "enhanced_for_statement": Setting("name", "value", "computedFrom", body="body"),
        },
        branches=frozenset({"if_statement", "ternary_expression"}),
        loops=frozenset({"for_statement", "while_statement", "do_statement"}),
        updates=frozenset({"update_expression"}),
    ),
    "csharp": Grammar(
        settings={
            "variable_declarator": Setting("name", None, "comesFrom"),
            "assignment_expression": _ASSIGNED,
            "foreach_statement": _EACH,
        },
        branches=frozenset({"if_statement", "conditional_expression"}),
        loops=frozenset({"for_statement", "while_statement", "do_statement"}),
        updates=frozenset({"postfix_unary_expression"}),
    ),
    "python": Grammar(
        settings={
            "default_parameter": _DECLARED,
            "typed_default_parameter": _DECLARED,
            "assignment": _ASSIGNED,
            "augmented_assignment": _ASSIGNED,
            "named_expression": Setting("name", "value", "computedFrom"),
            "for_in_clause": _ASSIGNED,
            "for_statement": _EACH,
        },
        branches=frozenset({"if_statement"}),
        loops=frozenset({"while_statement"}),
        lists=frozenset({"pattern_list", "tuple_pattern", "expression_list", "tuple"}),
        followed_first=frozenset({"for_in_clause"}),
    ),
    "javascript": Grammar(
        settings={
            "variable_declarator": _DECLARED,
            "assignment_pattern": Setting("left", "right", "comesFrom"),
            "assignment_expression": _ASSIGNED,
            "augmented_assignment_expression": _ASSIGNED,
            "for_in_statement": _EACH,
        },
        branches=frozenset({"if_statement", "ternary_expression"}),
        loops=frozenset({"for_statement", "while_statement", "do_statement"}),
        updates=frozenset({"update_expression"}),
    ),
    "go": Grammar(
        settings={
            "var_spec": _DECLARED,
            "const_spec": _DECLARED,
            "short_var_declaration": _ASSIGNED,
            "assignment_statement": _ASSIGNED,
            "range_clause": _ASSIGNED,
        },
        branches=frozenset({"if_statement"}),
        loops=frozenset({"for_statement"}),
        updates=frozenset({"inc_statement", "dec_statement"}),
        lists=frozenset({"expression_list"}),
    ),
    "php": Grammar(
        settings={
            "simple_parameter": Setting("name", "default_value", "comesFrom"),
            "assignment_expression": _ASSIGNED,
            "augmented_assignment_expression": _ASSIGNED,
        },
        branches=frozenset({"if_statement", "conditional_expression"}),
        loops=frozenset({"for_statement", "foreach_statement", "while_statement", "do_statement"}),
        updates=frozenset({"update_expression"}),
        names=frozenset({"variable_name"}),
        whole=_STRINGS - {"encapsed_string"} | {"variable_name"},
    ),
    "ruby": Grammar(
        settings={
            "optional_parameter": _DECLARED,
            "assignment": _ASSIGNED,
            "operator_assignment": _ASSIGNED,
            "for": Setting("pattern", "value", "computedFrom", body="body"),
        },
        branches=frozenset({"if", "elsif", "unless", "conditional"}),
        loops=frozenset({"while", "until"}),
        lists=frozenset({"left_assignment_list", "right_assignment_list"}),
        names=frozenset({"identifier", "instance_variable", "global_variable", "class_variable"}),
        whole=_STRINGS - {"string"},
    ),
}
