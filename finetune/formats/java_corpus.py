"""Java source as CodeXGLUE's line completion writes it (javaCorpus): tokens with single spaces, normalised literals."""

from collections.abc import Iterator, Sequence

from tree_sitter import Node

from finetune.formats.literals import Literals
from finetune.syntax import Parsed, parse

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
