"""Whether a Java statement can come to its end, as the language's rules of reachability have it (JLS 14.22)."""

from tree_sitter import Node

from finetune.syntax import Parsed
from finetune.transforms.scopes import statements

_LEAVES = ("return_statement", "throw_statement", "break_statement", "continue_statement", "yield_statement")
_LOOPS = ("while_statement", "for_statement", "do_statement")
# Not looked into: what follows them is then left as it is.
_UNKNOWN = ("switch_expression", "switch_statement", "labeled_statement")


def may_complete(parsed: Parsed, node: Node) -> bool:
    """False when it cannot, and when that is not easily told."""
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
