"""The forms of CodeXGLUE's published items of line completion: py150 for Python, javaCorpus for Java.

Source is tokenized and joined by single spaces; frequent literals keep their value, all others are replaced by a
placeholder without it.
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
    """The literals that keep their value (`<NUM_LIT:1>`); all others are `<STR_LIT>`, `<NUM_LIT>` or `<CHAR_LIT>`."""

    strings: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    characters: frozenset[str] = frozenset()

    def string(self, content: str) -> str:
        """Return the placeholder of a string with this text between its quotes."""
        return _literal_text("STR", _without_separators(content), self.strings)

    def character(self, content: str) -> str:
        """Return the placeholder of a literal with this one character between its quotes."""
        return _literal_text("CHAR", _without_separators(content), self.characters)

    def number(self, text: str) -> str:
        """Return the placeholder of a number with this spelling."""
        return _literal_text("NUM", text, self.numbers)


def read_literals(path: Path) -> Literals:
    """Read CodeXGLUE's `literals.json`. Raise UserError if the file has another form."""
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
    """Return the tokens of a file without comments and indentation; [] if Python cannot lex the text.

    Lines within brackets end in `<EOL>` too, blank lines do not.
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
    """Return (first, end) of every possible completion: from any token except the first to the end of its line."""
    ends = line_ends(tokens)
    return [(number, ends[number]) for number in range(1, len(tokens)) if tokens[number] != LINE_END]


def line_ends(tokens: Sequence[str]) -> list[int]:
    """Return for every token the index at which the tokens of its line end (exclusive)."""
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
"""The tokens that end a completion."""
_COMMENTS = frozenset(("line_comment", "block_comment"))
_NUMBERS = ("integer_literal", "floating_point_literal")
# The lexer of the published files splits `>>`, which may close two type arguments, and has no token `@interface`.
_APART = {">>": (">", ">"), ">>>": (">", ">", ">"), "@interface": ("@", "interface")}
_MIN_TOKENS_BEFORE = 9
_MAX_TOKENS = 47


def java_corpus_tokens(text: str, literals: Literals) -> list[str]:
    """Return the tokens of a file or a method without comments; [] if the text does not parse.

    A character literal with an escape is a string (`'<STR_LIT:\\n>'`), as in the published files. These contain no text
    blocks: a text block becomes a string like any other.
    """
    parsed = parse(text, "java")
    if parsed is None:
        return []
    return [token for node in _leaves(parsed) for token in _written(node.type, parsed.text(node), literals)]


def java_corpus_cuts(tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Return (first, end) of the completion for every possible cut; some are duplicates.

    Measured on the 1,500 published items: all completions end at the first `;` (93%) or `}` after the cut, across any
    `{`, and have 2 to 47 tokens (mean 10.9, median 9), after at least 9 tokens of input. Cuts are uniform over a file's
    tokens, but a cut that would leave only the `;` or `}` is moved on to the next token that is neither: 17% of the
    items begin a statement, compared with 8% for uniform cuts and 16% for cuts moved like this.
    """
    cuts: list[tuple[int, int]] = []
    end, cut = None, None
    for number in range(len(tokens) - 1, _MIN_TOKENS_BEFORE - 1, -1):
        # At an end token, `cut` keeps the value of the next token that is not one.
        if tokens[number] in ENDS:
            end = number + 1
        elif end is not None:
            cut = (number, end)
        if cut is not None and cut[1] - cut[0] <= _MAX_TOKENS:
            cuts.append(cut)
    return cuts[::-1]


def _leaves(parsed: Parsed) -> Iterator[Node]:
    """Yield the nodes of single tokens in the order of the text; a string literal is one node."""
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
    """A published form: `tokens` tokenizes a text ([] if it cannot), `cuts` returns the (first, end) of completions."""

    language: str
    tokens: Callable[[str, Literals], list[str]]
    cuts: Callable[[Sequence[str]], list[tuple[int, int]]]


_FORMS = {
    "python": PublishedLines("Python", py150_tokens, py150_cuts),
    "java": PublishedLines("Java", java_corpus_tokens, java_corpus_cuts),
}


def published_lines(language: str) -> PublishedLines:
    """Return the language's published form. Raise UserError if no items were published in it."""
    form = _FORMS.get(grammar_name(language))
    if form is None:
        raise UserError(
            f"task.literals: CodeXGLUE's line completion is in Python and Java, so there is no form for items in "
            f"{language}: set task.language, or leave task.literals out and name a training file (task.train)"
        )
    return form


def language_of_items(items: Sequence[Pair]) -> str | None:
    """Return the language of the items, None if unknown: Python's have `<EOL>`, all of Java's end with `;` or `}`."""
    if any(LINE_END in pair.source.split() for pair in items):
        return "Python"
    if items and all(pair.references[0].endswith(tuple(ENDS)) for pair in items):
        return "Java"
    return None
