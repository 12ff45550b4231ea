"""Rule on the size of a file: drops files that are too short to learn from, and dumps of data."""

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import TextFile


def size_rejection(num_bytes: int, config: FiltersConfig) -> Rejection | None:
    """Apply the rule to a size only, for files that have not been read yet."""
    if config.min_file_bytes <= num_bytes <= config.max_file_bytes:
        return None
    return Rejection("file_size", float(num_bytes))


def file_size(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject texts of fewer than `min_file_bytes` or more than `max_file_bytes` bytes."""
    return size_rejection(len(file.data), config)
