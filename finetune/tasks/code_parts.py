"""Parts of long codes, so that none outweighs the others where tokens are judged."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial

import numpy as np

from finetune.examples import Code
from finetune.lexing import Lexeme


def part_of(item: Code, most: int | None, generator: np.random.Generator) -> Code:
    """The item, or a part of at most `most` characters of its text, from the start of a line, or of a token with blanks
    around it, on.

    What is a lexeme is decided by the whole text: a part may begin within a string.
    """
    text = item.text
    if most is None or len(text) <= most:
        return item
    starts = _starts(text, most)
    start = starts[int(generator.integers(len(starts)))]
    return Code(item.key, text[start : start + most], partial(_lexemes_within, item, start, start + most))


def _starts(text: str, most: int) -> Sequence[int]:
    """Where parts may begin: at lines, up to the first of which the text's end is reached; where there are no lines, at
    tokens between blanks; else anywhere.
    """
    latest, end = len(text) - most, len(text.rstrip())
    for parting in "\n ":
        starts = [0, *(one.end() for one in re.finditer(parting, text) if one.end() < end)]
        usable = starts[: bisect_left(starts, latest) + 1]
        if len(usable) > 1:
            return usable
    return range(latest + 1)


def _lexemes_within(item: Code, start: int, end: int) -> list[Lexeme]:
    """Those that stand in characters [start, end) as a whole, at their bytes from `start` on."""
    first_byte, last_byte = len(item.text[:start].encode()), len(item.text[:end].encode())
    return [
        Lexeme(one.text, one.kind, one.start_byte - first_byte, one.end_byte - first_byte)
        for one in item.lexemes
        if first_byte <= one.start_byte and one.end_byte <= last_byte
    ]
