"""The kinds of bug. Each finder yields the edits of a function that produce a bug of its kind.

Studies of bug fixes find these kinds often in one-line changes (Karampatsis and Sutton, "ManySStuBs4J", MSR 2020):
wrong operator, constant, variable or argument order, missing negation, check, return or call.
"""

from collections.abc import Callable, Iterator

from tree_sitter import Node

from finetune.bugs import nodes
from finetune.syntax import Edit, Parsed, of_types, walk

Site = tuple[Edit, ...]
Finder = Callable[[Parsed, Node], Iterator[Site]]
_OPERATORS = {
    "<": ("<=", ">"),
    "<=": ("<", ">="),
    ">": (">=", "<"),
    ">=": (">", "<="),
    "==": ("!=",),
    "!=": ("==",),
    "===": ("!==",),
    "!==": ("===",),
    "&&": ("||",),
    "||": ("&&",),
    "and": ("or",),
    "or": ("and",),
    "is": ("is not",),
    "is not": ("is",),
    "in": ("not in",),
    "not in": ("in",),
    "+": ("-",),
    "-": ("+",),
    "*": ("/",),
    "/": ("*",),
    "%": ("/",),
}
_OPPOSITE = {"true": "false", "false": "true", "True": "False", "False": "True"}


def wrong_operator(parsed: Parsed, function: Node) -> Iterator[Site]:
    """Yield edits that replace a comparison, boolean or arithmetic operator by a similar one."""
    for node in of_types(function, *nodes.BINARY):
        for child in node.children:
            if not child.is_named and not (parsed.text(child) == "+" and _joins_texts(node)):
                for other in _OPERATORS.get(parsed.text(child), ()):
                    yield (_replaced(child, other),)


def off_by_one(parsed: Parsed, function: Node) -> Iterator[Site]:
    """Yield edits that make an integer one too high or too low."""
    for node in of_types(function, *nodes.INTEGERS):
        text = parsed.text(node)
        if text.isdecimal() and (text == "0" or text[0] != "0"):
            yield (_replaced(node, str(int(text) + 1)),)
            if int(text) > 0:
                yield (_replaced(node, str(int(text) - 1)),)


def wrong_constant(parsed: Parsed, function: Node) -> Iterator[Site]:
    """Yield edits that invert a boolean, or replace an integer by 0, 1 or another one of the same function."""
    integers = [node for node in of_types(function, *nodes.INTEGERS) if parsed.text(node).isdecimal()]
    values = sorted({parsed.text(node) for node in integers} | {"0", "1"})
    for node in integers:
        for value in values:
            if value != parsed.text(node):
                yield (_replaced(node, value),)
    for node in of_types(function, *nodes.BOOLEANS):
        if parsed.text(node) in _OPPOSITE:
            yield (_replaced(node, _OPPOSITE[parsed.text(node)]),)


def swapped_arguments(parsed: Parsed, function: Node) -> Iterator[Site]:
    """Yield edits that swap two neighbouring arguments of a call."""
    for node in of_types(function, *nodes.ARGUMENTS):
        arguments = [one for one in nodes.statements(node) if one.type != "keyword_argument"]
        for first, second in zip(arguments, arguments[1:], strict=False):
            if "splat" not in first.type + second.type and parsed.text(first) != parsed.text(second):
                yield (_replaced(first, parsed.text(second)), _replaced(second, parsed.text(first)))


def wrong_negation(parsed: Parsed, function: Node) -> Iterator[Site]:
    """Yield edits that remove a negation, or negate a condition."""
    for node in of_types(function, *nodes.NEGATIONS):
        operand = node.named_children[-1] if node.named_children else None
        if operand is not None and parsed.text(node.children[0]) in ("!", "not"):
            yield (_replaced(node, parsed.text(operand)),)
    for node in of_types(function, "if_statement", "while_statement"):
        condition = node.child_by_field_name("condition")
        if condition is None or parsed.text(condition).lstrip("( ").startswith(("!", "not ")):
            continue
        if parsed.language == "python":
            yield (_replaced(condition, f"not ({parsed.text(condition)})"),)
        else:
            bare = condition.type != "parenthesized_expression"
            yield (
                _replaced(
                    condition, f"!({parsed.text(condition)})" if bare else f"(!{parsed.text(condition)})"
                ),
            )


def wrong_variable(parsed: Parsed, function: Node) -> Iterator[Site]:
    """Yield edits that read another variable of the function, of the same type if types are written."""
    bound = nodes.bound_variables(parsed, function)
    for node in nodes.variable_reads(function):
        name = parsed.text(node)
        if name not in bound:
            continue
        for other, (start, kind) in bound.items():
            if other != name and start < node.start_byte and kind == bound[name][1]:
                yield (_replaced(node, other),)


def missing_check(parsed: Parsed, function: Node) -> Iterator[Site]:
    """Yield edits that remove a null check: an early exit, the `if` around a block, or the left side of an `and`."""
    for node in of_types(function, "if_statement"):
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("consequence")
        if condition is None or body is None or node.child_by_field_name("alternative") is not None:
            continue
        if not nodes.mentions_nothing(parsed, condition):
            continue
        inner = nodes.statements(body) if body.type in nodes.BLOCKS else [body]
        if len(inner) == 1 and inner[0].type in nodes.JUMPS:
            yield from _removed(parsed, node)
        elif parsed.language != "python":
            yield (_replaced(node, parsed.text(body)),)
    for node in of_types(function, "binary_expression", "boolean_operator"):
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is None or right is None or parsed.text(node.children[1]) not in ("&&", "||", "and", "or"):
            continue
        if nodes.mentions_nothing(parsed, left):
            yield (_replaced(node, parsed.text(right)),)


def missing_return(parsed: Parsed, function: Node) -> Iterator[Site]:
    """Yield edits that remove a `return` from an inner block that has other statements."""
    for node in of_types(function, "return_statement"):
        block = node.parent
        if block is not None and block.parent is not None and block.parent.type not in nodes.FUNCTIONS:
            yield from _removed(parsed, node)


def missing_call(parsed: Parsed, function: Node) -> Iterator[Site]:
    """Yield edits that remove a call whose value is not used."""
    for node in walk(function):
        called = (
            node.named_children[0] if node.type == "expression_statement" and node.named_children else node
        )
        if called.type in nodes.CALLS and node.parent is not None and node.parent.type in nodes.BLOCKS:
            yield from _removed(parsed, node)


KINDS: dict[str, Finder] = {
    finder.__name__: finder
    for finder in (
        wrong_operator,
        off_by_one,
        wrong_constant,
        swapped_arguments,
        wrong_negation,
        wrong_variable,
        missing_check,
        missing_return,
        missing_call,
    )
}


def _joins_texts(node: Node) -> bool:
    """Return whether a `+` has a string operand: a minus there would not be a realistic bug."""
    return any("string" in child.type for child in node.named_children)


def _replaced(node: Node, text: str) -> Edit:
    return Edit(node.start_byte, node.end_byte, text)


def _removed(parsed: Parsed, node: Node) -> Iterator[Site]:
    """Yield the edit that removes a statement, and its line if it has one to itself, unless the block has no other."""
    if node.parent is None or node.parent.type not in nodes.BLOCKS or len(nodes.statements(node.parent)) < 2:
        return
    line_start = parsed.data.rfind(b"\n", 0, node.start_byte) + 1
    line_end = parsed.data.find(b"\n", node.end_byte)
    line_end = len(parsed.data) if line_end < 0 else line_end
    before, after = parsed.data[line_start : node.start_byte], parsed.data[node.end_byte : line_end]
    if before.strip() or after.strip():
        yield (Edit(node.start_byte, node.end_byte, ""),)
    elif line_end < parsed.end:
        yield (Edit(max(line_start, parsed.start), line_end + 1, ""),)
    else:
        yield (Edit(max(line_start - 1, parsed.start), node.end_byte, ""),)
