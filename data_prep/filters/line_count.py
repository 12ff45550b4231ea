"""Number of lines: generated code is long."""

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import TextFile


def line_count(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """The number of lines when it exceeds `max_lines`, or in `data_languages` `max_data_lines`."""
    limits = [config.max_lines]
    if file.language in config.data_languages:
        limits.append(config.max_data_lines)
    limit = min((limit for limit in limits if limit is not None), default=file.num_lines)
    return Rejection("line_count", float(file.num_lines)) if file.num_lines > limit else None
