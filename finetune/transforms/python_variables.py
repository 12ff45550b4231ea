"""Where the local variables of a Python function stand, for those of which all places are known."""

from collections import defaultdict
from collections.abc import Iterator

from tree_sitter import Node

from finetune.syntax import Parsed, of_types, walk

TokenLayout = dict[str, list[Node]]
# Their names live on in other scopes, or are bound in ways that are not followed here.
_NOT_FOLLOWED = (
    "class_definition",
    "match_statement",
    "exec_statement",
    "type_alias_statement",
    "print_statement",
)
_NEW_SCOPES = ("function_definition", "lambda", "list_comprehension", "set_comprehension",
               "dictionary_comprehension", "generator_expression")  # fmt: skip
_PARAMETERS = ("parameters", "lambda_parameters")
_SPREAD = ("pattern_list", "tuple_pattern", "list_pattern", "list_splat_pattern", "dictionary_splat_pattern")


def python_variables(parsed: Parsed, function: Node) -> TokenLayout:
    """Every identifier of each variable that the function itself binds.

    Names bound in the function are never looked up outside of it, so all identifiers of that name within are this
    variable's, or those of a function or comprehension inside, which may be renamed alike.
    """
    parameters, body = function.child_by_field_name("parameters"), function.child_by_field_name("body")
    if parameters is None or body is None or of_types(function, *_NOT_FOLLOWED):
        return {}
    keywords = set(_keywords(parsed))
    barred = {"self", "cls", *_fixed(parsed, function)}
    parameter_names = {parsed.text(node) for node in _own_parameters(parameters)}
    inner_parameters = {
        parsed.text(one) for node in of_types(body, *_PARAMETERS) for one in _own_parameters(node)
    }
    barred |= keywords & (parameter_names | inner_parameters)
    bound = parameter_names | {parsed.text(node) for node in _bound_in(body)}
    evaluated_outside = [node for node in parameters.children if node.is_named]
    outside = {parsed.text(node) for one in evaluated_outside for node in _defaults_and_types(one)}
    names = {name for name in bound - barred - outside if not name.startswith("__")}
    places: defaultdict[str, list[Node]] = defaultdict(list)
    for part in (parameters, body):
        for node in of_types(part, "identifier"):
            if parsed.text(node) in names and _is_variable(node):
                places[parsed.text(node)].append(node)
    return dict(places)


def _own_parameters(parameters: Node) -> Iterator[Node]:
    for child in parameters.named_children:
        node: Node | None = child
        if child.type in ("default_parameter", "typed_default_parameter"):
            node = child.child_by_field_name("name")
        elif child.type == "typed_parameter":
            node = child.named_children[0]
        if node is not None and node.type in ("list_splat_pattern", "dictionary_splat_pattern"):
            node = node.named_children[0] if node.named_children else None
        if node is not None and node.type == "identifier":
            yield node


def _defaults_and_types(parameter: Node) -> Iterator[Node]:
    for field in ("value", "type"):
        node = parameter.child_by_field_name(field)
        if node is not None:
            yield from of_types(node, "identifier")


def _bound_in(body: Node) -> Iterator[Node]:
    """Identifiers that the body binds in its own scope."""
    stack = [body]
    while stack:
        node = stack.pop()
        for field in ("left", "name", "alias"):
            target = node.child_by_field_name(field)
            if target is not None and node.type in _BINDERS.get(field, ()):
                yield from _targets(target)
        if node.type == "as_pattern_target":
            yield from _targets(node)
        # A named expression in a comprehension binds outside of it, but is not worth following.
        stack += [child for child in node.children if child.type not in _NEW_SCOPES]


_BINDERS = {"left": ("assignment", "augmented_assignment", "for_statement"), "name": ("named_expression",)}


def _targets(node: Node) -> Iterator[Node]:
    if node.type == "identifier":
        yield node
    elif node.type in _SPREAD or node.type in (
        "as_pattern_target",
        "parenthesized_expression",
        "tuple",
        "list",
    ):
        for child in node.named_children:
            yield from _targets(child)


def _keywords(parsed: Parsed) -> Iterator[str]:
    for node in of_types(parsed.root, "keyword_argument"):
        name = node.child_by_field_name("name")
        if name is not None:
            yield parsed.text(name)


def _fixed(parsed: Parsed, function: Node) -> Iterator[str]:
    """Names that must stay: global, nonlocal, imported, told by an f-string, or of functions within."""
    for node in walk(function):
        if node.type in ("global_statement", "nonlocal_statement", "dotted_name", "aliased_import"):
            yield from (parsed.text(one) for one in of_types(node, "identifier"))
        elif node.type == "interpolation" and any(child.type == "=" for child in node.children):
            yield from (parsed.text(one) for one in of_types(node, "identifier"))
        elif node.type == "function_definition":
            name = node.child_by_field_name("name")
            if name is not None:
                yield parsed.text(name)


def _is_variable(node: Node) -> bool:
    parent = node.parent
    if parent is None:
        return False
    if parent.type == "attribute":
        return parent.child_by_field_name("attribute") != node
    if parent.type == "keyword_argument":
        return parent.child_by_field_name("name") != node
    return True
