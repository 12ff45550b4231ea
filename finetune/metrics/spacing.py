"""Insertion of spaces between tokens, for metrics that split at white space, and tokens for Python's structure."""

from finetune.metrics.syntax import parse

_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


def spaced(code: str, language: str) -> str:
    """Insert a space between tokens of the code's grammar that have no white space between them; line ends are kept.

    Code with syntax errors is accepted. A string's quotes are tokens. Do not use it for PHP, to which `parse` adds a
    prefix.
    """
    data = code.encode("utf-8", errors="replace")
    waiting, starts = [parse(code, language)], set()
    while waiting:
        node = waiting.pop()
        waiting += node.children
        if not node.children and node.start_byte < node.end_byte:
            starts |= {node.start_byte, node.end_byte}
    cuts = [0, *sorted(starts), len(data)]
    pieces = [data[start:end] for start, end in zip(cuts, cuts[1:], strict=False) if start < end]
    found = b""
    for piece in pieces:
        touches = found and not found[-1:].isspace() and not piece[:1].isspace()
        found += b" " + piece if touches else piece
    return found.decode("utf-8", errors="replace")


def structured_python(code: str) -> str:
    """Return Python code as one line of tokens, with `<indent>`, `<dedent>` and `<newline>` for its structure.

    The result does not depend on the width of indentation or on the layout within brackets. Code with syntax errors is
    accepted.
    """
    depths, open_brackets, tokens = [0], 0, list[str]()
    for line in spaced(code, "python").expandtabs().split("\n"):
        words = line.split()
        if not words:
            continue
        if open_brackets == 0:
            tokens += _changes_of_depth(depths, len(line) - len(line.lstrip()))
        tokens += words
        open_brackets += sum((word in _OPENING) - (word in _CLOSING) for word in words)
        open_brackets = max(0, open_brackets)
        if open_brackets == 0:
            tokens.append("<newline>")
    return " ".join(tokens)


def _changes_of_depth(depths: list[int], depth: int) -> list[str]:
    """Return the structure tokens before a line at `depth`, and update `depths`, those of the enclosing blocks."""
    found = []
    while depth < depths[-1]:
        depths.pop()
        found.append("<dedent>")
    if depth > depths[-1]:
        depths.append(depth)
        found.append("<indent>")
    return found
