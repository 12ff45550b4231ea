"""Longest line, in characters: minified code and embedded data."""

import numpy as np

from data_prep.config import FiltersConfig
from data_prep.decoding import DecodedFile


def line_length(file: DecodedFile, config: FiltersConfig) -> float | None:
    """The length of the longest line when it exceeds `max_line_chars`."""
    newlines = np.flatnonzero(np.frombuffer(file.data, np.uint8) == ord("\n"))
    ends = np.concatenate([[-1], newlines, [len(file.data)]])
    # Bytes are never fewer than characters, so most files need no second look.
    if int(np.diff(ends).max()) - 1 <= config.max_line_chars:
        return None
    longest = max(len(line) for line in file.text.split("\n"))
    return float(longest) if longest > config.max_line_chars else None
