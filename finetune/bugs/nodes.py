"""The syntax nodes that a bug can be put into, by their names in the grammars of Python, Java, JavaScript and C#."""

from collections.abc import Iterator

from tree_sitter import Node

from finetune.syntax import Parsed, walk

ARGUMENTS = ("argument_list", "arguments")
BINARY = ("binary_expression", "boolean_operator", "comparison_operator", "binary_operator")
INTEGERS = ("decimal_integer_literal", "integer", "number", "integer_literal")
BOOLEANS = ("true", "false", "boolean_literal")
NEGATIONS = ("unary_expression", "prefix_unary_expression", "not_operator")
BLOCKS = ("block", "statement_block", "constructor_body")
CALLS = ("call", "call_expression", "method_invocation", "invocation_expression")
JUMPS = (
    "return_statement",
    "raise_statement",
    "throw_statement",
    "continue_statement",
    "break_statement",
)
FUNCTIONS = (
    "function_definition",
    "method_declaration",
    "constructor_declaration",
    "function_declaration",
    "method_definition",
    "local_function_statement",
)
_NOTHING = ("null", "None", "undefined")
_TYPED = (
    "formal_parameter",
    "parameter",
    "local_variable_declaration",
    "variable_declaration",
    "enhanced_for_statement",
    "catch_formal_parameter",
    "resource",
)
_NAMES_OTHER = {
    "attribute": ("attribute",),
    "keyword_argument": ("name",),
    "method_invocation": ("name",),
    "field_access": ("field",),
    "member_access_expression": ("name",),
    "call": ("function",),
    "call_expression": ("function",),
    "invocation_expression": ("function",),
}


def statements(block: Node) -> list[Node]:
    """Return the statements directly in a block, without comments."""
    return [child for child in block.named_children if "comment" not in child.type]


def mentions_nothing(parsed: Parsed, node: Node) -> bool:
    """Return whether the node contains null, None or undefined."""
    return any(not one.child_count and parsed.text(one) in _NOTHING for one in walk(node))


def bound_variables(parsed: Parsed, function: Node) -> dict[str, tuple[int, str]]:
    """Return for each parameter and local variable the byte where it is first bound, and its type's text or ""."""
    found: dict[str, tuple[int, str]] = {}
    for node in walk(function):
        if node.type == "identifier" and _binds(node) and parsed.text(node) not in ("self", "cls"):
            found.setdefault(parsed.text(node), (node.start_byte, _type_text(parsed, node)))
    return found


def variable_reads(function: Node) -> Iterator[Node]:
    """Yield the identifiers that are read as variables: not a binding, member, keyword or called function."""
    for node in walk(function):
        if node.type == "identifier" and not _binds(node) and not _names_other(node):
            yield node


def _binds(node: Node) -> bool:
    parent = node.parent
    if parent is None:
        return False
    field = _field_of(parent, node)
    if parent.type in ("assignment", "for_statement", "for_in_statement", "for_in_clause"):
        return field == "left"
    if parent.type in ("pattern_list", "tuple_pattern"):
        return _binds(parent)
    if parent.type in ("parameters", "lambda_parameters", "formal_parameters", "list_splat_pattern"):
        return True
    if parent.type == "typed_parameter":
        return field != "type"
    declares = ("variable_declarator", "default_parameter", "typed_default_parameter", *_TYPED)
    return parent.type in declares and field == "name"


def _names_other(node: Node) -> bool:
    parent = node.parent
    if parent is None:
        return False
    if parent.type in _NAMES_OTHER:
        return _field_of(parent, node) in _NAMES_OTHER[parent.type]
    if parent.type in FUNCTIONS or parent.type.endswith("_type") or "annotation" in parent.type:
        return True
    return parent.type in (
        "type",
        "dotted_name",
        "type_arguments",
        "labeled_statement",
        "method_reference",
    ) or (parent.type in _TYPED and _field_of(parent, node) == "type")


def _field_of(parent: Node, node: Node) -> str | None:
    for number, child in enumerate(parent.children):
        if child == node:
            return parent.field_name_for_child(number)
    return None


def _type_text(parsed: Parsed, node: Node) -> str:
    parent = node.parent
    while parent is not None and parent.type not in FUNCTIONS:
        if parent.type in _TYPED:
            kind = parent.child_by_field_name("type")
            return "" if kind is None else parsed.text(kind)
        parent = parent.parent
    return ""
