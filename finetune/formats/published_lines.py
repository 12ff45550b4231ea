"""The forms in which CodeXGLUE has published items of line completion: py150 for Python, javaCorpus for Java.

Source becomes tokens with single spaces between them; frequent literals keep their value, all others are left out.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tree_sitter import Node

from cluster.errors import UserError
from finetune.formats.files import read_text
from finetune.formats.records import parse_json
from finetune.languages import grammar_name
from finetune.lexing import LexemeClass, python_lexemes
from finetune.modalities.writing import Pair
from finetune.syntax import Parsed, parse


@dataclass(frozen=True)
class Literals:
    """Literals that keep their value (`<NUM_LIT:1>`); all others are `<STR_LIT>`, `<NUM_LIT>` and `<CHAR_LIT>`."""

    strings: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    characters: frozenset[str] = frozenset()

    def string(self, content: str) -> str:
        """Return the literal for the text between the quotes."""
        return _literal_text("STR", _without_separators(content), self.strings)

    def character(self, content: str) -> str:
        """Return the literal for the one character between the quotes."""
        return _literal_text("CHAR", _without_separators(content), self.characters)

    def number(self, text: str) -> str:
        """Return the literal for a number as it is written."""
        return _literal_text("NUM", text, self.numbers)


def read_literals(path: Path) -> Literals:
    """CodeXGLUE's `literals.json`. UserError when the file is another one."""
    found = parse_json(read_text(path), str(path))
    # Languages without character literals need no list of them.
    lists = {"char": [], **found} if isinstance(found, dict) else {}
    strings, numbers, characters = (_texts(lists.get(name)) for name in ("str", "num", "char"))
    if strings is None or numbers is None or characters is None:
        raise UserError(
            f"{path} must have lists 'str' and 'num' (and for Java 'char') of texts: "
            "it must be CodeXGLUE's literals.json"
        )
    return Literals(strings, numbers, characters)


def _texts(found: object) -> frozenset[str] | None:
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        return None
    return frozenset(found)


def _without_separators(content: str) -> str:
    return content.replace(" ", "U+0020").replace(",", "U+002C")


def _literal_text(kind: str, value: str, kept: frozenset[str]) -> str:
    return f"<{kind}_LIT:{value}>" if value in kept else f"<{kind}_LIT>"


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
    """Return for every token where the tokens of its line end."""
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


ENDS = frozenset((";", "}"))
"""What a completion ends with."""
_COMMENTS = frozenset(("line_comment", "block_comment"))
_NUMBERS = ("integer_literal", "floating_point_literal")
# The published files' lexer leaves it to the parser whether `>>` is a shift, and knows no token `@interface`.
_APART = {">>": (">", ">"), ">>>": (">", ">", ">"), "@interface": ("@", "interface")}
_MIN_TOKENS_BEFORE = 9
_MAX_TOKENS = 47


def java_corpus_tokens(text: str, literals: Literals) -> list[str]:
    """The tokens of a file or a method, comments left out; [] for text that does not parse.

    A character that is written with an escape is a string (`'<STR_LIT:\\n>'`), as in the published files. These know
    no text blocks: one becomes a string like any other.
    """
    parsed = parse(text, "java")
    if parsed is None:
        return []
    return [token for node in _leaves(parsed) for token in _written(node.type, parsed.text(node), literals)]


def java_corpus_cuts(tokens: Sequence[str]) -> list[tuple[int, int]]:
    """(first, end) of what a cut leaves to be written, one for every place that is cut; some are alike.

    Measured on the 1,500 published items: all go on to the first `;` (93%) or `}` after the cut, over any `{`, and have
    2 to 47 tokens (mean 10.9, median 9); at least 9 stand before. Cuts are even over a file's tokens, but where only
    the `;` or `}` would be left they are moved on to the next token that is none: 17% of the items begin a statement,
    where even cuts alone give 8%, and cuts moved so 16%.
    """
    cuts: list[tuple[int, int]] = []
    end, cut = None, None
    for number in range(len(tokens) - 1, _MIN_TOKENS_BEFORE - 1, -1):
        # Before an end `cut` stays that of the next token that is none.
        if tokens[number] in ENDS:
            end = number + 1
        elif end is not None:
            cut = (number, end)
        if cut is not None and cut[1] - cut[0] <= _MAX_TOKENS:
            cuts.append(cut)
    return cuts[::-1]


def _leaves(parsed: Parsed) -> Iterator[Node]:
    """The nodes of single tokens in the order of the text; literals are whole."""
    stack = [parsed.root]
    while stack:
        node = stack.pop()
        if node.type in _COMMENTS:
            continue
        if node.children and node.type != "string_literal":
            stack += reversed(node.children)
        elif parsed.start <= node.start_byte < node.end_byte <= parsed.end:
            yield node


def _written(kind: str, text: str, literals: Literals) -> tuple[str, ...]:
    if kind == "string_literal":
        quote = 3 if text.startswith('"""') else 1
        return (f'"{literals.string(text[quote:-quote])}"',)
    if kind == "character_literal":
        content = text[1:-1]
        one = literals.character(content) if len(content) == 1 else literals.string(content)
        return (f"'{one}'",)
    if kind.endswith(_NUMBERS):
        return (literals.number(text),)
    return _APART.get(text, (text,))


@dataclass(frozen=True)
class PublishedLines:
    """A published form: its tokens, [] where there are none, and which (first, end) of them are completed."""

    language: str
    tokens: Callable[[str, Literals], list[str]]
    cuts: Callable[[Sequence[str]], list[tuple[int, int]]]


_FORMS = {
    "python": PublishedLines("Python", py150_tokens, py150_cuts),
    "java": PublishedLines("Java", java_corpus_tokens, java_corpus_cuts),
}


def published_lines(language: str) -> PublishedLines:
    """UserError for a language of which no items were published."""
    form = _FORMS.get(grammar_name(language))
    if form is None:
        raise UserError(
            f"task.literals: CodeXGLUE's line completion is in Python and Java, so there is no form for items in "
            f"{language}: set task.language, or leave task.literals out and name a training file (task.train)"
        )
    return form


def language_of_items(items: Sequence[Pair]) -> str | None:
    """Return the language of the items: Python's have `<EOL>`, every completion of Java's ends at `;` or `}`."""
    if any(LINE_END in pair.source.split() for pair in items):
        return "Python"
    if items and all(pair.references[0].endswith(tuple(ENDS)) for pair in items):
        return "Java"
    return None
