"""Slow reference implementations of the vectorized rules, on str and with patterns."""

import re
from html.parser import HTMLParser

_HEX = re.compile(r"(?:(?:\b0x|\\x|\b)[0-9a-fA-F]{2}(?:,\s{0,32}|\b\s{0,32})){8,}", re.A)
_BASE64 = re.compile(r"[a-zA-Z0-9+/\n=]{64,}")
_UNICODE = re.compile(r"(?:\\u[0-9a-fA-F]{4}){8,}")


def lines(text: str) -> list[str]:
    """Return the text's lines without their ends."""
    found = text.split("\n")
    return found[:-1] if found[-1] == "" else found


def longest_line(text: str) -> int:
    """Return the length in characters; 0 for an empty text."""
    return max(map(len, lines(text)), default=0)


def mean_line(text: str) -> float:
    """Return the length in characters; 0 for an empty text."""
    found = lines(text)
    return sum(map(len, found)) / len(found) if found else 0.0


def alphanumeric_share(text: str) -> float:
    """1 for an empty text."""
    return sum(map(str.isalnum, text)) / len(text) if text else 1.0


def letter_share(text: str) -> float:
    """1 for an empty text."""
    return sum(map(str.isalpha, text)) / len(text) if text else 1.0


def control_share(text: str) -> float:
    """0 for an empty text."""
    controls = [c for c in text if (c < " " and c not in "\t\n\v\f\r\b\x1b") or c == "\x7f"]
    return len(controls) / len(text) if text else 0.0


def is_encoded(text: str, max_chars: int, max_share: float) -> bool:
    """Return whether an ASCII text has encoded data beyond the limits."""
    for pattern in (_BASE64, _HEX, _UNICODE):
        runs = [found[0] for found in pattern.finditer(text)]
        if pattern is _BASE64:
            runs = [run for run in runs if 32 * sum(map(str.isdigit, run)) >= len(run)]
        lengths = [len(run) for run in runs]
        if lengths and (max(lengths) > max_chars or sum(lengths) > max_share * len(text)):
            return True
    return False


class _Visible(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.hidden = ""
        self.num_chars = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in ("script", "style"):
            self.hidden = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self.hidden:
            self.hidden = ""

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.num_chars += len(data)

    def handle_entityref(self, name: str) -> None:
        self.num_chars += len(name) + 2  # & and ;

    def handle_charref(self, name: str) -> None:
        self.num_chars += len(name) + 3  # &# and ;


def num_visible_chars(html: str) -> int:
    """Return the visible text by the standard library's parser; references count as they are written."""
    parser = _Visible()
    parser.feed(html)
    parser.close()
    return parser.num_chars
