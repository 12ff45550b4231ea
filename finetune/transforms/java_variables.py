"""Where the parameters and local variables of a Java method stand, for those of which all places are known."""

from collections import defaultdict
from collections.abc import Iterator

from tree_sitter import Node

from finetune.syntax import Parsed, of_types

TokenLayout = dict[str, list[Node]]
Span = tuple[int, int]
# Bodies of classes within have fields and methods that hide variables.
_NOT_FOLLOWED = ("class_body", "enum_body", "interface_body", "record_declaration", "record_pattern")
_ENDS_SCOPE = (
    "block",
    "constructor_body",
    "for_statement",
    "enhanced_for_statement",
    "catch_clause",
    "try_with_resources_statement",
    "switch_block",
    "lambda_expression",
    "method_declaration",
    "constructor_declaration",
)
_BINDERS = (
    "variable_declarator",
    "formal_parameter",
    "enhanced_for_statement",
    "catch_formal_parameter",
    "resource",
)
# Here an identifier names no variable, or (in a switch's label) may name a constant.
_NO_VARIABLE = (
    "annotation",
    "marker_annotation",
    "element_value_pair",
    "labeled_statement",
    "break_statement",
    "continue_statement",
    "scoped_identifier",
    "scoped_type_identifier",
    "switch_label",
    "method_declaration",
    "constructor_declaration",
)


def java_variables(parsed: Parsed, method: Node) -> TokenLayout:
    """Every identifier of each variable whose name stands only within its own scopes: a field of that name elsewhere
    in the method, a constant in a `case`, or a pattern's variable leaves it out."""
    if of_types(method, *_NOT_FOLLOWED):
        return {}
    scopes: defaultdict[str, list[Span]] = defaultdict(list)
    barred: set[str] = set()
    for name, scope in _bindings(method):
        scopes[parsed.text(name)].append(scope)
    places: defaultdict[str, list[Node]] = defaultdict(list)
    for node in of_types(method, "identifier"):
        text = parsed.text(node)
        if text not in scopes or not _is_variable(node):
            if node.parent is not None and node.parent.type in ("switch_label", "instanceof_expression"):
                barred.add(text)
        elif any(start <= node.start_byte < end for start, end in scopes[text]):
            places[text].append(node)
        else:
            barred.add(text)
    for node in of_types(method, "instanceof_expression"):
        pattern = node.child_by_field_name("name")
        if pattern is not None:
            barred.add(parsed.text(pattern))
    return {name: nodes for name, nodes in places.items() if name not in barred}


def _bindings(method: Node) -> Iterator[tuple[Node, Span]]:
    for node in of_types(method, *_BINDERS):
        name = node.child_by_field_name("name")
        if name is not None and name.type == "identifier":
            yield name, _scope(node, name)
    for node in of_types(method, "inferred_parameters"):
        for child in node.named_children:
            yield child, _scope(node, child)
    for node in of_types(method, "lambda_expression"):
        alone = node.child_by_field_name("parameters")
        if alone is not None and alone.type == "identifier":
            yield alone, _scope(alone, alone)


def _scope(binder: Node, name: Node) -> Span:
    parent: Node | None = binder if binder.type == "enhanced_for_statement" else binder.parent
    while parent is not None and parent.type not in _ENDS_SCOPE:
        parent = parent.parent
    return name.start_byte, parent.end_byte if parent is not None else name.end_byte


def _is_variable(node: Node) -> bool:
    parent = node.parent
    if parent is None or parent.type in _NO_VARIABLE:
        return False
    if parent.type == "method_invocation":
        return parent.child_by_field_name("name") != node
    if parent.type == "field_access":
        return parent.child_by_field_name("field") != node
    if parent.type == "method_reference":
        return parent.children[0] == node
    return True
