"""Code as CodeXGLUE's token completion writes it: a file per line, its tokens with single spaces between."""

import keyword
import re

from finetune.formats.published_lines import LINE_END, START
from finetune.lexing import Lexeme, LexemeClass

_END = "</s>"
_NOT_JUDGED = frozenset({START, _END, LINE_END, "<INDENT>", "<DEDENT>", "<pad>"})
"""What the official evaluator passes over, and the layout that other sets in this form write."""
_LITERAL = re.compile(r"""[A-Za-z]*['"]|<(STR|NUM|CHAR)_LIT|\.?\d""")
_JAVA_KEYWORDS = frozenset(
    "abstract assert boolean break byte case catch char class const continue default do double else enum extends "
    "final finally float for goto if implements import instanceof int interface long native new null package private "
    "protected public return short static strictfp super switch synchronized this throw throws transient true false "
    "try void volatile while".split()
)


def without_ends(line: str) -> str:
    """The line without `<s>` before and `</s>` behind it."""
    return line.removeprefix(START).removesuffix(_END).strip(" ")


def spaced_lexemes(text: str) -> list[Lexeme]:
    """Every token but those that the official evaluator does not judge: ends of files and of lines."""
    found, start = [], 0
    for token in text.split(" "):
        end = start + len(token.encode())
        if token and token not in _NOT_JUDGED:
            found.append(Lexeme(token, _class_of(token), start, end))
        start = end + 1
    return found


def _class_of(token: str) -> LexemeClass:
    """Classify a token by its characters, because the file does not name its language."""
    if _LITERAL.match(token):
        return LexemeClass.LITERAL
    if keyword.iskeyword(token) or token in _JAVA_KEYWORDS:
        return LexemeClass.KEYWORD
    return LexemeClass.IDENTIFIER if token.replace("$", "_").isidentifier() else LexemeClass.OPERATOR
