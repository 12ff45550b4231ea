"""The functions of a text, their blocks, and names that the text does not use."""

import re
from collections.abc import Iterator

from tree_sitter import Node

from finetune.syntax import Parsed, of_types, walk

_WORD = re.compile(rb"[^\W\d]\w*")
FUNCTIONS = {
    "python": ("function_definition",),
    "java": ("method_declaration", "constructor_declaration"),
}
_BLOCKS = {"python": ("block",), "java": ("block", "constructor_body")}
# These read or change variables by name, so the text does not show all uses of a variable.
_REFLECTIVE = frozenset(("locals", "vars", "eval", "exec", "globals", "dir", "__import__"))


def outermost_functions(parsed: Parsed) -> Iterator[Node]:
    """Yield the functions and methods that are not inside another one, including those of classes."""
    stack = [parsed.root]
    while stack:
        node = stack.pop()
        if node.type in FUNCTIONS[parsed.language]:
            yield node
        else:
            stack += reversed(node.children)


def blocks(parsed: Parsed) -> list[Node]:
    """Return the blocks of statements that run in functions, not in the body of a class."""
    return [
        block
        for function in outermost_functions(parsed)
        for block in of_types(function, *_BLOCKS[parsed.language])
        if not in_class(block)
    ]


def in_class(node: Node) -> bool:
    """Return whether a Python statement runs in the body of a class, whose names are attributes."""
    parent = node.parent
    while parent is not None and parent.type not in ("function_definition", "class_definition"):
        parent = parent.parent
    return parent is not None and parent.type == "class_definition"


def statements(block: Node) -> list[Node]:
    """Return the statements directly in a block, without comments."""
    return [child for child in block.named_children if "comment" not in child.type]


def is_reflective(parsed: Parsed) -> bool:
    """Return whether Python code may access its variables by name."""
    return parsed.language == "python" and any(
        node.type == "identifier" and parsed.text(node) in _REFLECTIVE for node in walk(parsed.root)
    )


class FreshNames:
    """Names that do not occur in the text, not even in strings and comments."""

    def __init__(self, parsed: Parsed) -> None:
        self._taken = {match.decode(errors="replace") for match in _WORD.findall(parsed.data)}
        self._number = 0

    def next(self) -> str:
        """Return the next of v0, v1, ... that the text does not contain."""
        while True:
            name = f"v{self._number}"
            self._number += 1
            if name not in self._taken:
                return name
