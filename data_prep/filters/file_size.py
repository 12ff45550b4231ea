"""Size of a file: what is too short to teach anything, and dumps of data."""

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import TextFile


def size_rejection(num_bytes: int, config: FiltersConfig) -> Rejection | None:
    """The rule for a size alone, for those who have not read the file yet."""
    if config.min_file_bytes <= num_bytes <= config.max_file_bytes:
        return None
    return Rejection("file_size", float(num_bytes))


def file_size(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """The bytes of the text when there are fewer than `min_file_bytes` or more than `max_file_bytes`."""
    return size_rejection(len(file.data), config)
