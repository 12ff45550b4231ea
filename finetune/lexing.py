"""Python source as a list of the lexemes that completion scores."""

import io
import keyword
import tokenize
from dataclasses import dataclass
from enum import StrEnum


class LexemeClass(StrEnum):
    """What a lexeme is, for the accuracy by class. Soft keywords (`match`, `type`) count as identifiers."""

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
# Python 3.12 and 3.14 lex f-strings and t-strings in pieces; older ones give one STRING, as do we everywhere.
_OPENERS = {getattr(tokenize, name, None) for name in ("FSTRING_START", "TSTRING_START")} - {None}
_CLOSERS = {getattr(tokenize, name, None) for name in ("FSTRING_END", "TSTRING_END")} - {None}


def python_lexemes(text: str) -> list[Lexeme]:
    """Names, keywords, operators, numbers and strings in order; [] for text that Python cannot lex.

    Comments, line ends and indentation are no lexemes. A formatted string is one literal on every Python.
    """
    byte_of = _ByteOffsets(text)
    lexemes: list[Lexeme] = []
    string_starts: list[int] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.ERRORTOKEN and token.string.strip():
                return []  # Python 3.11 goes on behind what it cannot lex, later ones do not
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
    """Turns tokenize's (row, column in characters) into UTF-8 byte offsets."""

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
