"""Private keys in PEM, OpenSSH, PGP, SSH2 and PuTTY form, in files of their own and in string literals."""

import re
from collections.abc import Iterator

from data_prep.secrets.text import Span, Text

_BEGIN = re.compile(rb"BEGIN (?:[A-Z0-9]{2,16} ){0,3}PRIVATE KEY(?: BLOCK)?(?: ?-{2,5})?")
# A line's end in a file, or its escape in a string.
_BREAK = rb"(?:\\[rn]|\s)"
# Lines of base64, separated by line ends only. Pieces shorter than 16 between quotes may be code.
_MATERIAL = re.compile(
    rb"[A-Za-z0-9+/=]{16,}+(?:" + _BREAK + rb"{1,64}[A-Za-z0-9+/=]{4,}+(?=[\s\\\"'`<\-]|\Z))*"
)
_MAX_KEY_BYTES = 1 << 15
_PUTTY = re.compile(rb"PuTTY-User-Key-File-\d")
_PUTTY_PRIVATE = re.compile(rb"Private-Lines: \d+" + _BREAK + rb"{1,8}")
_PUTTY_BODY = re.compile(rb"[^\n]{0,128}\n(?![A-Z][A-Za-z-]{2,20}:)([^\n]{4,512})")


def private_key_spans(text: Text, begins: list[int]) -> Iterator[Span]:
    """Yield the material of the private keys whose headers' anchors are at `begins` (ascending), without headers."""
    limits = [*begins[1:], len(text.data)]
    for at, limit in zip(begins, limits, strict=True):
        header = text.data.rfind(b"BEGIN", max(0, at - 64), at)
        begin = _BEGIN.match(text.data, header) if header >= 0 else None
        if begin is None or begin.end() <= at:
            continue
        end = text.data.find(b"END", begin.end(), min(limit, at + _MAX_KEY_BYTES))
        end = end if end >= 0 else min(limit, at + 4096)
        for match in _MATERIAL.finditer(text.data, begin.end(), end):
            start = match.start()
            # The letter of an escape is not part of the key.
            if start > begin.end() and text.data[start - 1 : start + 1] in (b"\\n", b"\\r"):
                start += 1
            yield Span(start, match.end(), "private_key")


def putty_at(text: Text, at: int, _end: int) -> Span | None:
    """Return the private lines of a PuTTY key file, encrypted or not."""
    if _PUTTY.match(text.data, at) is None:
        return None
    private = _PUTTY_PRIVATE.search(text.data, at, at + 8192)
    if private is not None:
        material = _MATERIAL.search(text.data, private.end(), private.end() + 8192)
        return Span(material.start(), material.end(), "private_key") if material else None
    body = _PUTTY_BODY.match(text.data, at) if at == 0 or text.data[at - 1] == 10 else None
    return Span(body.start(1), body.end(1), "private_key") if body else None
