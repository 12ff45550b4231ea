"""Java functions in the form of CodeXGLUE's refinement set: tokens with single spaces between, names made abstract.

Tufano et al., "An Empirical Study on Learning Bug-Fixing Patches in the Wild via Neural Machine Translation", 2018:
names and literals become TYPE_1, METHOD_2, VAR_1, STRING_1, numbered by their first occurrence in the buggy function
and then in the right one, so both sides share them. Frequent names ("idioms") stay. The set was printed by a tool that
qualifies library types and puts operands in brackets. Types are qualified here if an idiom has the qualified name;
brackets are not added.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from tree_sitter import Node

from finetune.syntax import Parsed, parse

_ABSTRACT = re.compile(r"(TYPE|METHOD|VAR|STRING|INT|FLOAT|CHAR)_\d+")
_LITERALS = {
    "string_literal": "STRING",
    "character_literal": "CHAR",
    "decimal_integer_literal": "INT",
    "hex_integer_literal": "INT",
    "decimal_floating_point_literal": "FLOAT",
}


def idioms_of(lines: Iterable[str], at_least: int = 5) -> frozenset[str]:
    """Return the tokens of abstracted functions that occur `at_least` times and are not abstract names."""
    counts = Counter(token for line in lines for token in line.split())
    return frozenset(
        token for token, count in counts.items() if count >= at_least and not _ABSTRACT.match(token)
    )


def abstracted_pair(
    buggy: str, fixed: str, language: str, idioms: frozenset[str] = frozenset()
) -> tuple[str, str] | None:
    """Return both functions with common abstract names; None if one is not Java or both become the same."""
    parsed = [parse(code, language) for code in (buggy, fixed)]
    if parsed[0] is None or parsed[1] is None or parsed[0].language != "java":
        return None
    names = _Names(idioms)
    both = [" ".join(names.token(one, leaf) for leaf in _leaves(one)) for one in parsed if one is not None]
    return (both[0], both[1]) if both[0] != both[1] else None


class _Names:
    """The abstract names of the names and literals of one pair."""

    def __init__(self, idioms: frozenset[str]) -> None:
        self._idioms = idioms
        self._qualified = {
            token.rpartition(".")[2]: token for token in sorted(idioms) if token.count(".") > 1
        }
        self._known: defaultdict[str, dict[str, str]] = defaultdict(dict)

    def token(self, parsed: Parsed, leaf: Node) -> str:
        text = " ".join(parsed.text(leaf).split())
        kind = _LITERALS.get(leaf.type) or _kind_of_name(leaf, text)
        if kind == "TYPE" and text in self._qualified:
            return self._qualified[text]
        if kind is None or text in self._idioms or text == "super":
            return text
        known = self._known[kind]
        return known.setdefault(text, f"{kind}_{len(known) + 1}")


def _kind_of_name(leaf: Node, text: str) -> str | None:
    if leaf.type == "type_identifier":
        return "TYPE"
    if leaf.type != "identifier" or leaf.parent is None:
        return None
    parent = leaf.parent
    if "annotation" in parent.type:
        return "TYPE"
    if (
        parent.type in ("method_invocation", "method_declaration")
        and parent.child_by_field_name("name") == leaf
    ):
        return "METHOD"
    if parent.type == "constructor_declaration":
        return "TYPE"
    if parent.type in ("method_invocation", "field_access") and text[:1].isupper() and not text.isupper():
        return "TYPE" if parent.child_by_field_name("object") == leaf else "VAR"
    return "VAR"


def _leaves(parsed: Parsed) -> Iterator[Node]:
    """Yield the tokens in order, each literal as one token, without comments and the wrapper."""
    stack = [parsed.root]
    while stack:
        node = stack.pop()
        if "comment" in node.type or node.end_byte <= parsed.start or node.start_byte >= parsed.end:
            continue
        if node.child_count == 0 or node.type in _LITERALS:
            if node.end_byte > node.start_byte:
                yield node
        else:
            stack += reversed(node.children)
