"""Reader of CodeXGLUE's token completion form: a file of code per line, its tokens joined by single spaces."""

import keyword
import re

from finetune.formats.published_lines import LINE_END, START
from finetune.lexing import Lexeme, LexemeClass

_END = "</s>"
_NOT_JUDGED = frozenset({START, _END, LINE_END, "<INDENT>", "<DEDENT>", "<pad>"})
"""The tokens that the official evaluator skips, and the layout tokens of other data sets in this form."""
_LITERAL = re.compile(r"""[A-Za-z]*['"]|<(STR|NUM|CHAR)_LIT|\.?\d""")
_JAVA_KEYWORDS = frozenset(
    "abstract assert boolean break byte case catch char class const continue default do double else enum extends "
    "final finally float for goto if implements import instanceof int interface long native new null package private "
    "protected public return short static strictfp super switch synchronized this throw throws transient true false "
    "try void volatile while".split()
)


def without_ends(line: str) -> str:
    """Remove `<s>` from the start of the line and `</s>` from its end."""
    return line.removeprefix(START).removesuffix(_END).strip(" ")


def spaced_lexemes(text: str) -> list[Lexeme]:
    """Return every token except those that are not scored: ends of files and of lines, layout and padding."""
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
