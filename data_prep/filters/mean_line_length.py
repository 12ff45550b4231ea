"""Mean line length, in characters: generated tables and data files."""

from data_prep.config import FiltersConfig
from data_prep.decoding import DecodedFile


def mean_line_length(file: DecodedFile, config: FiltersConfig) -> float | None:
    """The mean number of characters per line, newline included, when it exceeds `max_mean_line_chars`."""
    num_lines = file.data.count(b"\n") + (not file.data.endswith(b"\n"))
    mean = len(file.text) / num_lines
    return mean if mean > config.max_mean_line_chars else None
