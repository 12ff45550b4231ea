"""Rule on the share of letters and digits: drops banners, tables of numbers in brackets, ASCII art."""

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import ALPHANUMERIC, TextFile


def alphanumeric_share(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject a share of letters and digits among all characters below `min_alphanumeric_share`."""
    wanted = config.min_alphanumeric_share * file.num_chars
    num = file.count(ALPHANUMERIC)
    if num < wanted:
        # Non-ASCII characters can only add to the count, so they are counted only if they matter.
        num += sum(map(str.isalnum, file.beyond_ascii))
    return Rejection("alphanumeric_share", num / file.num_chars) if num < wanted else None
