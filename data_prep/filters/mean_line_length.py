"""Rule on the mean line length: drops generated tables and data files."""

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import TextFile


def mean_line_length(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject a mean number of characters per line, without line ends, above `max_mean_line_chars`."""
    if not file.num_lines or file.language in config.long_line_languages:
        return None
    num_line_ends = file.num_lines - (not file.data.endswith(b"\n"))
    mean = (file.num_chars - num_line_ends) / file.num_lines
    return Rejection("mean_line_length", mean) if mean > config.max_mean_line_chars else None
