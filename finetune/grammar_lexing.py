"""Lexemes of any language that tree-sitter has a grammar for: the leaves of the syntax tree."""

from collections.abc import Iterator

from tree_sitter import Node

from finetune.lexing import Lexeme, LexemeClass
from finetune.syntax import Parsed, parse


def grammar_lexemes(text: str, language: str) -> list[Lexeme]:
    """Names, keywords, operators and literals in order; [] for text that has a syntax error in that language.

    Comments are no lexemes. A string is one, whatever is interpolated in it.
    """
    parsed = parse(text, language)
    if parsed is None:
        return []
    found = (_lexeme(node, parsed) for node in _pieces(parsed.root))
    return [one for one in found if one is not None]


def _lexeme(node: Node, parsed: Parsed) -> Lexeme | None:
    """None for a node of a wrapper around the text, and for line ends, which some grammars make tokens of."""
    whole = parsed.text(node)
    text = whole.strip()
    if not text or node.start_byte < parsed.start or node.end_byte > parsed.end:
        return None
    # Blanks before a comment may be counted to the token before them.
    num_before = len(whole.encode()) - len(whole.lstrip().encode())
    start = node.start_byte - parsed.start + num_before
    return Lexeme(text, _class_of(node, text), start, start + len(text.encode()))


_NAMES_IN_PARTS = ("lifetime", "label")
"""Rust's 'a and 'outer, which its grammar takes apart."""


def _pieces(node: Node) -> Iterator[Node]:
    stack = [node]
    while stack:
        node = stack.pop()
        if "comment" in node.type:
            continue
        if not node.children or _is_text(node) or node.type in _NAMES_IN_PARTS:
            yield node
        else:
            stack += reversed(node.children)


def _is_text(node: Node) -> bool:
    """Strings, characters and regular expressions; grammars take them apart."""
    kind = node.type
    if not node.is_named or kind.endswith(("_list", "_array", "_type", "_name")):
        return False
    return "string" in kind or kind.startswith(("char", "rune", "regex"))


def _class_of(node: Node, text: str) -> LexemeClass:
    first = text[0]
    if node.type in _NAMES_IN_PARTS:
        return LexemeClass.IDENTIFIER
    if _is_text(node) or first.isdigit() or first in "\"'`" or (first == "." and text[1:2].isdigit()):
        return LexemeClass.LITERAL
    if node.is_named and ("identifier" in node.type or node.type in ("name", "constant")):
        return LexemeClass.IDENTIFIER
    return LexemeClass.KEYWORD if first.isalpha() or first in "_#" else LexemeClass.OPERATOR
