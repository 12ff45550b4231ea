"""Parts of long codes, so that none outweighs the others where tokens are judged."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from finetune.lexing import Lexeme
from finetune.modalities.predicting import Code

_WRAPPED_CHARACTERS = 100


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
    """Where parts may begin: at lines, up to the first from which the text's end is reached. A line longer than half a
    part counts as lines of 100 characters, each from a token with blanks around it on, where there is one.
    """
    latest, end = len(text) - most, len(text.rstrip())
    starts: list[int] = []
    begin = 0
    for line in text[:end].split("\n"):
        starts.append(begin)
        if len(line) > most // 2:
            starts += _within(line, begin, min(_WRAPPED_CHARACTERS, max(1, most // 2)))
        begin += len(line) + 1
    return starts[: bisect_left(starts, latest) + 1]


def _within(line: str, begin: int, width: int) -> Iterator[int]:
    for place in range(width, len(line), width):
        blank = line.find(" ", place, place + width - 1)
        yield begin + (blank + 1 if blank >= 0 else place)


def _lexemes_within(item: Code, start: int, end: int) -> list[Lexeme]:
    """Those that stand in characters [start, end) as a whole, at their bytes from `start` on."""
    first_byte, last_byte = len(item.text[:start].encode()), len(item.text[:end].encode())
    return [
        Lexeme(one.text, one.kind, one.start_byte - first_byte, one.end_byte - first_byte)
        for one in item.lexemes
        if first_byte <= one.start_byte and one.end_byte <= last_byte
    ]
