"""Rule on the share of control characters: drops binary formats without NULs, and terminal recordings."""

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import CONTROL, TextFile


def control_characters(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject a share of control characters above `max_control_share`."""
    num = file.count(CONTROL)
    if num <= config.max_control_share * file.num_chars:
        return None
    return Rejection("control_characters", num / file.num_chars)
