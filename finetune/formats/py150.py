"""Python source as CodeXGLUE's line completion writes it: tokens with single spaces, `<EOL>`, normalised literals."""

import re
from collections.abc import Sequence

from finetune.formats.literals import Literals
from finetune.lexing import LexemeClass, python_lexemes

START, LINE_END = "<s>", "<EOL>"
_STRING = re.compile(r"([A-Za-z]*)('''|\"\"\"|'|\")(.*)\2", re.DOTALL)


def py150_tokens(text: str, literals: Literals) -> list[str]:
    """The tokens of a file, comments and indentation left out; [] for text that Python cannot lex.

    Lines within brackets end in `<EOL>` too, blank ones do not.
    """
    data, reached = text.encode(), 0
    tokens: list[str] = []
    for lexeme in python_lexemes(text):
        between = data[reached : lexeme.start_byte].replace(b"\\\n", b"").replace(b"\\\r\n", b"")
        if b"\n" in between and tokens:
            tokens.append(LINE_END)
        tokens.append(_literal(lexeme.text, literals) if lexeme.kind is LexemeClass.LITERAL else lexeme.text)
        reached = lexeme.end_byte
    return tokens


def py150_cuts(tokens: Sequence[str]) -> list[tuple[int, int]]:
    """(first, end) of what a cut leaves to be written: from a token but the first to its line's end."""
    ends = line_ends(tokens)
    return [(number, ends[number]) for number in range(1, len(tokens)) if tokens[number] != LINE_END]


def line_ends(tokens: Sequence[str]) -> list[int]:
    """For every token, where its line's tokens end."""
    ends, end = [], len(tokens)
    for number in range(len(tokens) - 1, -1, -1):
        if tokens[number] == LINE_END:
            end = number
        ends.append(end)
    return ends[::-1]


def _literal(text: str, literals: Literals) -> str:
    match = _STRING.fullmatch(text)
    if match is None:
        return literals.number(text)
    prefix, quote, content = match.groups()
    return f"{prefix}{quote}{literals.string(content)}{quote}"
