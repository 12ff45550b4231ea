"""Replaces `for` loops by `while` loops."""

from collections.abc import Iterator

import numpy as np
from tree_sitter import Node

from finetune.syntax import Edit, Parsed, indent_of, of_types
from finetune.transforms.scopes import FreshNames, in_class, is_reflective, outermost_functions, statements

_LEAVES = ("return_statement", "throw_statement", "break_statement", "continue_statement", "yield_statement")
_LOOPS = ("while_statement", "for_statement", "do_statement")
# These are not analysed: a `for` loop whose body contains one as a statement may stay unchanged.
_UNKNOWN = ("switch_expression", "switch_statement", "labeled_statement")


def may_complete(parsed: Parsed, node: Node) -> bool:
    """Return whether a Java statement can complete normally by the language's reachability rules (JLS 14.22).

    False also if that is not easy to decide.
    """
    if node.type in _LEAVES or node.type in _UNKNOWN:
        return False
    if node.type in ("block", "constructor_body"):
        return all(may_complete(parsed, one) for one in statements(node))
    if node.type == "if_statement":
        return _if_may(parsed, node)
    if node.type in _LOOPS:
        condition = node.child_by_field_name("condition")
        return condition is not None and parsed.text(condition).strip("() \n") != "true" and (
            node.type != "do_statement" or _body_may(parsed, node)
        )  # fmt: skip
    if node.type in ("try_statement", "try_with_resources_statement"):
        parts = [
            child for child in node.children if child.type in ("block", "catch_clause", "finally_clause")
        ]
        return all(_blocks_may(parsed, part) for part in parts)
    if node.type == "synchronized_statement":
        return _body_may(parsed, node)
    return True


def _if_may(parsed: Parsed, node: Node) -> bool:
    first, second = node.child_by_field_name("consequence"), node.child_by_field_name("alternative")
    if first is None or second is None:
        return True
    return may_complete(parsed, first) or may_complete(parsed, second)


def _body_may(parsed: Parsed, node: Node) -> bool:
    body = node.child_by_field_name("body")
    return body is not None and may_complete(parsed, body)


def _blocks_may(parsed: Parsed, part: Node) -> bool:
    if part.type == "block":
        return may_complete(parsed, part)
    return all(may_complete(parsed, child) for child in part.children if child.type == "block")


_BUILTINS = frozenset(("iter", "next", "StopIteration"))


def for_to_while(parsed: Parsed, generator: np.random.Generator) -> Iterator[Edit]:
    """Yield the edits that replace every simple `for` loop; of nested Java loops only the outer. Uses no randomness.

    Python loops fetch their items with `iter` and `next`, so `break`, `continue` and `return` keep their meaning;
    loops with an `else` and asynchronous loops stay unchanged.
    """
    fresh, reached = FreshNames(parsed), -1
    if parsed.language == "python":
        if not is_reflective(parsed) and not _rebinds_builtins(parsed):
            for function in outermost_functions(parsed):
                for loop in of_types(function, "for_statement"):
                    yield from _python(parsed, loop, fresh)
        return
    for loop in of_types(parsed.root, "for_statement"):
        edits = _java(parsed, loop) if loop.start_byte >= reached else []
        if edits:
            yield from edits
            reached = loop.end_byte


def _rebinds_builtins(parsed: Parsed) -> bool:
    for node in of_types(parsed.root, "identifier"):
        if parsed.text(node) in _BUILTINS and node.parent is not None:
            called = node.parent.type == "call" and node.parent.child_by_field_name("function") == node
            if not called and node.parent.type not in ("except_clause", "raise_statement", "attribute"):
                return True
    return False


def _python(parsed: Parsed, loop: Node, fresh: FreshNames) -> Iterator[Edit]:
    """Yield the edits that replace the head of the loop; the body keeps its text and indentation."""
    left, right, body = (loop.child_by_field_name(field) for field in ("left", "right", "body"))
    colon = next((child for child in loop.children if child.type == ":"), None)
    indent = indent_of(parsed, loop)
    if left is None or right is None or body is None or colon is None or indent is None:
        return
    if loop.child_by_field_name("alternative") is not None or loop.children[0].type == "async":
        return
    if any(child.type == "comment" and child.start_byte < colon.start_byte for child in loop.children):
        return
    own_line = indent_of(parsed, body) is not None and body.start_point.row > colon.start_point.row
    inner = indent_of(parsed, body) if own_line else f"{indent}    "
    if inner is None or in_class(loop):
        return
    items = fresh.next()
    unit = inner.removeprefix(indent) or "    "
    values = parsed.text(right)
    values = f"({values})" if right.type == "expression_list" else values
    head = (
        f"{items} = iter({values})\n{indent}while True:\n"
        f"{inner}try:\n{inner}{unit}{parsed.text(left)} = next({items})\n"
        f"{inner}except StopIteration:\n{inner}{unit}break"
    )
    yield Edit(loop.start_byte, colon.end_byte, head)
    if not own_line:
        yield Edit(colon.end_byte, body.start_byte, f"\n{inner}")


def _java(parsed: Parsed, loop: Node) -> list[Edit]:
    """Return the edit to `{ init; while (condition) { body update; } }`, a block that keeps the variables' scope.

    Of loops with an update, those with a `continue` stay unchanged, because it would skip the update, and those whose
    body cannot complete, because Java rejects unreachable statements.
    """
    body = loop.child_by_field_name("body")
    if body is None or (loop.parent is not None and loop.parent.type == "labeled_statement"):
        return []
    updates = loop.children_by_field_name("update")
    if updates and (
        of_types(body, "continue_statement", "yield_statement") or not may_complete(parsed, body)
    ):
        return []
    condition = loop.child_by_field_name("condition")
    inits = [parsed.text(node).rstrip(";") + "; " for node in loop.children_by_field_name("init")]
    test = "true" if condition is None else parsed.text(condition)
    steps = "".join(f" {parsed.text(node)};" for node in updates)
    text = f"{{ {''.join(inits)}while ({test}) {{ {parsed.text(body)}{steps} }} }}"
    return [Edit(loop.start_byte, loop.end_byte, text)]
