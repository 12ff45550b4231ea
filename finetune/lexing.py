"""Lexers for the lexemes that completion scores: Python's own tokenizer, tree-sitter for other languages."""

import io
import keyword
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tree_sitter import Node

from finetune.syntax import Parsed, parse


class LexemeClass(StrEnum):
    """The class of a lexeme, for the accuracy by class. Soft keywords (`match`, `type`) count as identifiers."""

    IDENTIFIER = "identifier"
    KEYWORD = "keyword"
    OPERATOR = "operator"
    LITERAL = "literal"


@dataclass(frozen=True)
class Lexeme:
    """One code token at UTF-8 bytes [start_byte, end_byte) of its document."""

    text: str
    kind: LexemeClass
    start_byte: int
    end_byte: int


_CLASS_OF_TYPE = {
    tokenize.OP: LexemeClass.OPERATOR,
    tokenize.NUMBER: LexemeClass.LITERAL,
    tokenize.STRING: LexemeClass.LITERAL,
}
# Python 3.12 and 3.14 split f-strings and t-strings into pieces; older versions yield one STRING, as do we everywhere.
_OPENERS = {getattr(tokenize, name, None) for name in ("FSTRING_START", "TSTRING_START")} - {None}
_CLOSERS = {getattr(tokenize, name, None) for name in ("FSTRING_END", "TSTRING_END")} - {None}


def python_lexemes(text: str) -> list[Lexeme]:
    """Return names, keywords, operators, numbers and strings in order; [] if Python cannot lex the text.

    Comments, line ends and indentation are skipped. A formatted string is one literal on every Python version.
    """
    byte_of = _ByteOffsets(text)
    lexemes: list[Lexeme] = []
    string_starts: list[int] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.ERRORTOKEN and token.string.strip():
                return []  # Python 3.11 continues after text that it cannot lex, later versions do not
            start = byte_of(*token.start)
            if token.type in _OPENERS:
                string_starts.append(start)
            elif token.type in _CLOSERS:
                start = string_starts.pop()
                if not string_starts:
                    lexemes.append(byte_of.lexeme(LexemeClass.LITERAL, start, byte_of(*token.end)))
            elif not string_starts and (kind := _classify(token)) is not None:
                lexemes.append(byte_of.lexeme(kind, start, byte_of(*token.end)))
    except (tokenize.TokenError, SyntaxError):
        return []
    return lexemes


def _classify(token: tokenize.TokenInfo) -> LexemeClass | None:
    if token.type == tokenize.NAME:
        return LexemeClass.KEYWORD if keyword.iskeyword(token.string) else LexemeClass.IDENTIFIER
    return _CLASS_OF_TYPE.get(token.type)


class _ByteOffsets:
    """Converter from tokenize's (row, column in characters) to UTF-8 byte offsets."""

    def __init__(self, text: str) -> None:
        self._data = text.encode()
        self._lines = text.split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line.encode()) + 1)

    def __call__(self, row: int, column: int) -> int:
        if row > len(self._lines):
            return len(self._data)
        line = self._lines[row - 1]
        within = column if line.isascii() else len(line[:column].encode())
        return min(self._starts[row - 1] + within, len(self._data))

    def lexeme(self, kind: LexemeClass, start: int, end: int) -> Lexeme:
        return Lexeme(self._data[start:end].decode(), kind, start, end)


def grammar_lexemes(text: str, language: str) -> list[Lexeme]:
    """Return names, keywords, operators and literals in order; [] if the text has a syntax error in that language.

    Comments are skipped. A string is one lexeme, including what is interpolated in it.
    """
    parsed = parse(text, language)
    if parsed is None:
        return []
    found = (_lexeme(node, parsed) for node in _pieces(parsed.root))
    return [one for one in found if one is not None]


def _lexeme(node: Node, parsed: Parsed) -> Lexeme | None:
    """Return the node's lexeme; None for line ends and for nodes of the wrapper that `parse` adds around the text."""
    whole = parsed.text(node)
    text = whole.strip()
    if not text or node.start_byte < parsed.start or node.end_byte > parsed.end:
        return None
    # Grammars may count the blanks before a comment as part of the preceding token.
    num_before = len(whole.encode()) - len(whole.lstrip().encode())
    start = node.start_byte - parsed.start + num_before
    return Lexeme(text, _class_of(node, text), start, start + len(text.encode()))


_NAMES_IN_PARTS = ("lifetime", "label")
"""Rust's 'a and 'outer, which its grammar splits into several nodes."""


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
    """Return whether the node is a string, character or regular expression, which grammars split into several nodes."""
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
