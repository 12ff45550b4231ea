"""Text of a corpus on a terminal: it must not be able to move the cursor or turn lines around."""

import unicodedata

_KEPT = "\n\t"


def visible(text: str) -> str:
    """The text with every control, format and line-separating character but newline and tab spelled as <U+001B>."""
    if text.isprintable():
        return text
    return "".join(
        f"<U+{ord(char):04X}>" if char not in _KEPT and _is_unsafe(char) else char for char in text
    )


def _is_unsafe(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")
