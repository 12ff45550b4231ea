"""Inserts statements without effect: unused variables, and branches that are never taken."""

from collections.abc import Iterator

import numpy as np
from tree_sitter import Node

from finetune.syntax import Edit, Parsed, indent_of
from finetune.transforms.scopes import FreshNames, blocks, is_reflective, statements

# `{0}` is a fresh name. There is no `while (false)` for Java, which rejects unreachable loop bodies.
_PYTHON = (
    "{0} = 0",
    "if False: {0} = None",
    "while False: {0} = 1",
    "for {0} in (): pass",
    '{0} = "unused"',
)
_JAVA = (
    "int {0} = 0;",
    "if (false) {{ int {0} = 1; }}",
    "boolean {0} = false;",
    'String {0} = "unused";',
    "if (false) {{ long {0} = 2L; }}",
)
_MAX_PLACES = 4


def insert_dead_code(parsed: Parsed, generator: np.random.Generator) -> Iterator[Edit]:
    """Yield up to four inserted statements at sampled places, never before a docstring or `this(...)`."""
    if is_reflective(parsed):
        return
    fresh = FreshNames(parsed)
    texts = _PYTHON if parsed.language == "python" else _JAVA
    places = [statement for block in blocks(parsed) for statement in _may_follow(parsed, block)]
    for index in generator.permutation(len(places))[:_MAX_PLACES]:
        statement = places[index]
        text = texts[generator.integers(len(texts))].format(fresh.next())
        indent = indent_of(parsed, statement)
        # If the statement shares its line with other code, it stays on one line.
        after = " " if indent is None else f"\n{indent}"
        yield Edit(statement.start_byte, statement.start_byte, text + after)


def _may_follow(parsed: Parsed, block: Node) -> Iterator[Node]:
    for number, statement in enumerate(statements(block)):
        if statement.type == "explicit_constructor_invocation":
            continue
        if parsed.language == "python":
            first = statement.named_children[0] if statement.type == "expression_statement" else statement
            if (number == 0 and "string" in first.type) or indent_of(parsed, statement) is None:
                continue
        yield statement
