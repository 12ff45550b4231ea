"""Bytes of a file to text."""

import io
import tokenize
from dataclasses import dataclass


@dataclass(frozen=True)
class DecodedFile:
    """A file's text; `data` is the same text in UTF-8."""

    text: str
    data: bytes
    language: str


def decode(raw: bytes, language: str) -> DecodedFile | None:
    """The text of a file, or None when its bytes are not text.

    Python files may declare their encoding (PEP 263), everything else is UTF-8. A byte-order mark is
    removed and line ends become "\\n", so that copies which differ only in those are duplicates.
    """
    try:
        encoding = "utf-8-sig"
        if language == "Python":
            encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        text = raw.decode(encoding)
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        return DecodedFile(text, text.encode(), language)
    except (SyntaxError, ValueError, LookupError):
        # An unknown or contradictory declaration, bytes outside the encoding, or lone surrogates.
        return None
