"""Rule on the size of JSON and YAML: short files are empty, long ones are data."""

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import TextFile


def data_size(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject files in `sized_data_languages` that have not `min_data_chars` to `max_data_chars` characters."""
    if file.language not in config.sized_data_languages:
        return None
    if config.min_data_chars <= file.num_chars <= config.max_data_chars:
        return None
    return Rejection("data_size", float(file.num_chars))
