"""Renames parameters and local variables to names without meaning.

A name is changed everywhere in its outermost function or nowhere, to one that does not occur in the text, so no name is
captured. Names that have a meaning outside the function stay unchanged: builtins, attributes, keywords of calls, names
declared global, imported or used in a class within the function. Callers outside of the text that pass a parameter by
keyword are not considered.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from tree_sitter import Node

from finetune.syntax import Edit, Parsed, of_types, walk
from finetune.transforms.scopes import FreshNames, is_reflective, outermost_functions

Occurrences = dict[str, list[Node]]
"""The nodes of every variable, by its name."""

# Their names are visible in other scopes, or are bound in ways that are not analysed here.
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


def python_variables(parsed: Parsed, function: Node) -> Occurrences:
    """Return all identifiers of each variable that the function itself binds.

    Names bound in the function are never looked up outside of it, so all identifiers of that name within refer to this
    variable, or to one of an inner function or comprehension, which may be renamed in the same way.
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
    """Yield the identifiers that the body binds in its own scope."""
    stack = [body]
    while stack:
        node = stack.pop()
        for field in ("left", "name", "alias"):
            target = node.child_by_field_name(field)
            if target is not None and node.type in _BINDERS.get(field, ()):
                yield from _targets(target)
        if node.type == "as_pattern_target":
            yield from _targets(node)
        # A named expression in a comprehension binds outside of it; this is not analysed.
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
    """Yield the names that must stay: global, nonlocal, imported, printed by an f-string `=`, or inner functions."""
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


Span = tuple[int, int]
# Inner classes have fields and methods that may hide variables.
_JAVA_NOT_FOLLOWED = ("class_body", "enum_body", "interface_body", "record_declaration", "record_pattern")
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
_JAVA_BINDERS = (
    "variable_declarator",
    "formal_parameter",
    "enhanced_for_statement",
    "catch_formal_parameter",
    "resource",
)
# In these an identifier does not name a variable, or (in a switch's label) may name a constant.
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


def java_variables(parsed: Parsed, method: Node) -> Occurrences:
    """Return all identifiers of each variable whose name occurs only within its own scopes.

    A name is left out if elsewhere in the method a field, a constant in a `case` or a pattern's variable has it.
    """
    if of_types(method, *_JAVA_NOT_FOLLOWED):
        return {}
    scopes: defaultdict[str, list[Span]] = defaultdict(list)
    barred: set[str] = set()
    for name, scope in _java_bindings(method):
        scopes[parsed.text(name)].append(scope)
    places: defaultdict[str, list[Node]] = defaultdict(list)
    for node in of_types(method, "identifier"):
        text = parsed.text(node)
        if text not in scopes or not _is_java_variable(node):
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


def _java_bindings(method: Node) -> Iterator[tuple[Node, Span]]:
    for node in of_types(method, *_JAVA_BINDERS):
        name = node.child_by_field_name("name")
        if name is not None and name.type == "identifier":
            yield name, _java_scope(node, name)
    for node in of_types(method, "inferred_parameters"):
        for child in node.named_children:
            yield child, _java_scope(node, child)
    for node in of_types(method, "lambda_expression"):
        alone = node.child_by_field_name("parameters")
        if alone is not None and alone.type == "identifier":
            yield alone, _java_scope(alone, alone)


def _java_scope(binder: Node, name: Node) -> Span:
    parent: Node | None = binder if binder.type == "enhanced_for_statement" else binder.parent
    while parent is not None and parent.type not in _ENDS_SCOPE:
        parent = parent.parent
    return name.start_byte, parent.end_byte if parent is not None else name.end_byte


def _is_java_variable(node: Node) -> bool:
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


def rename_variables(parsed: Parsed, generator: np.random.Generator) -> Iterator[Edit]:
    """Yield the edits that rename every variable; the generator decides the order of the new names."""
    if is_reflective(parsed):
        return
    fresh = FreshNames(parsed)
    find = python_variables if parsed.language == "python" else java_variables
    for function in outermost_functions(parsed):
        variables = find(parsed, function)
        names = sorted(variables)
        for index in generator.permutation(len(names)):
            new = fresh.next()
            yield from (_renamed(node, new) for node in variables[names[index]])


def _renamed(node: Node, name: str) -> Edit:
    return Edit(node.start_byte, node.end_byte, name)
