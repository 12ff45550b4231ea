"""Rule on the number of lines: drops long files, which are usually generated."""

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import TextFile


def line_count(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject more lines than `max_lines`, or in `data_languages` than `max_data_lines`."""
    limits = [config.max_lines]
    if file.language in config.data_languages:
        limits.append(config.max_data_lines)
    limit = min((limit for limit in limits if limit is not None), default=file.num_lines)
    return Rejection("line_count", float(file.num_lines)) if file.num_lines > limit else None
