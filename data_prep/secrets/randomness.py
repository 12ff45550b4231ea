"""Measures of how random a string looks."""

import math
import re
from collections import Counter

_HEX = re.compile(rb"[0-9a-f]+|[0-9A-F]+")
_MIN_HEX_BITS = 3.0
# A number with an exponent has one letter.
_MIN_HEX_LETTERS = 2
_LOWER_RUN = re.compile(rb"[a-z]{4,}")
_MAX_LOWER_RUN_SHARE = 0.4
_MIN_CHANGES = 0.25
# Classes of characters: lower case, upper case, digits, the rest.
_CLASSES = bytes(
    0 if 97 <= byte <= 122 else 1 if 65 <= byte <= 90 else 2 if 48 <= byte <= 57 else 3 for byte in range(256)
)


def entropy_bits(value: bytes) -> float:
    """Return the Shannon entropy per byte, in bits, of the bytes' frequencies."""
    size = len(value)
    return -sum(count / size * math.log2(count / size) for count in Counter(value).values())


def is_random_hex(value: bytes) -> bool:
    """Return whether the value is hexadecimal of one case, with digits and letters in no simple order."""
    if _HEX.fullmatch(value) is None or value.isalpha():
        return False
    if sum(byte > 57 for byte in set(value)) < _MIN_HEX_LETTERS:
        return False
    return entropy_bits(value) > _MIN_HEX_BITS and not _is_sequence(value)


def is_random_base64(value: bytes, min_bits: float) -> bool:
    """Return whether the value has at least `min_bits` per byte and changes class more often than words or paths do.

    In random base64 two of three pairs of neighbours differ in class (26, 26, 10 and 2 characters of 64).
    """
    # The first condition is only a cheap bound on the second.
    if (
        len(set(value)) < 2**min_bits
        or entropy_bits(value) < min_bits
        or _is_sequence(value)
        or is_words(value)
    ):
        return False
    classes = value.translate(_CLASSES)
    changes = sum(left != right for left, right in zip(classes, classes[1:], strict=False))
    return changes >= _MIN_CHANGES * (len(value) - 1)


def is_words(value: bytes) -> bool:
    """Return whether mixed case comes from joined words (AmazonQueryEditor): much of it is in lower-case runs.

    Of random base64 one byte in fifteen is in such a run.
    """
    if value.islower():
        return False
    return sum(map(len, _LOWER_RUN.findall(value))) > _MAX_LOWER_RUN_SHARE * len(value)


def _is_sequence(value: bytes) -> bool:
    """Return whether most bytes follow their left neighbour in the alphabet, as in ABCDEF or 012345."""
    steps = sum(right - left in (0, 1) for left, right in zip(value, value[1:], strict=False))
    return steps > len(value) // 2
