"""White space between tokens, for metrics that know no others."""

from finetune.metrics.syntax import parse


def spaced(code: str, language: str) -> str:
    """The code with a space between any two of its grammar's tokens that touch each other; line ends stay.

    Broken code has tokens too. A string's quotes are tokens. Not for PHP, which is parsed with a mark before it.
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
