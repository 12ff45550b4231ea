"""Share of letters and digits: banners, tables of numbers in brackets, ASCII art."""

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import ALPHANUMERIC, TextFile


def alphanumeric_share(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """The share of letters and digits among all characters when it is below `min_alphanumeric_share`."""
    wanted = config.min_alphanumeric_share * file.num_chars
    num = file.count(ALPHANUMERIC)
    if num < wanted:
        # Those beyond ASCII can only add, so they are looked at only where they decide.
        num += sum(map(str.isalnum, file.beyond_ascii))
    return Rejection("alphanumeric_share", num / file.num_chars) if num < wanted else None
