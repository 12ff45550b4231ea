"""Python source as CodeXGLUE's line completion writes it: tokens with single spaces, `<EOL>`, normalised literals."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import UserError
from finetune.formats.files import read_text
from finetune.formats.jsonl import parse_json
from finetune.lexing import LexemeClass, python_lexemes

START, LINE_END = "<s>", "<EOL>"
_STRING = re.compile(r"([A-Za-z]*)('''|\"\"\"|'|\")(.*)\2", re.DOTALL)


@dataclass(frozen=True)
class Literals:
    """Those that keep their value; all others become `<STR_LIT>` and `<NUM_LIT>`."""

    strings: frozenset[str]
    numbers: frozenset[str]


def read_literals(path: Path) -> Literals:
    """CodeXGLUE's `literals.json`. UserError when the file is another one."""
    found = parse_json(read_text(path), str(path))
    lists = [found.get(name) if isinstance(found, dict) else None for name in ("str", "num")]
    if not all(isinstance(one, list) and all(isinstance(text, str) for text in one) for one in lists):
        raise UserError(f"{path} has no lists 'str' and 'num' of texts: it must be CodeXGLUE's literals.json")
    strings, numbers = (frozenset(one) for one in lists if one is not None)
    return Literals(strings, numbers)


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
        return f"<NUM_LIT:{text}>" if text in literals.numbers else "<NUM_LIT>"
    prefix, quote, content = match.groups()
    content = content.replace(" ", "U+0020").replace(",", "U+002C")
    kept = f"<STR_LIT:{content}>" if content in literals.strings else "<STR_LIT>"
    return f"{prefix}{quote}{kept}{quote}"
