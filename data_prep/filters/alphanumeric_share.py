"""Share of letters and digits: banners, tables of numbers in brackets, ASCII art."""

from data_prep.config import FiltersConfig
from data_prep.decoding import DecodedFile

_NOT_ALPHANUMERIC = bytes(code for code in range(256) if not (code < 128 and chr(code).isalnum()))


def alphanumeric_share(file: DecodedFile, config: FiltersConfig) -> float | None:
    """The share of letters and digits among all characters when it is below `min_alphanumeric_share`."""
    if not file.text:
        return 0.0 if config.min_alphanumeric_share > 0 else None
    if file.text.isascii():
        num_alphanumeric = len(file.data.translate(None, delete=_NOT_ALPHANUMERIC))
    else:
        num_alphanumeric = sum(map(str.isalnum, file.text))
    share = num_alphanumeric / len(file.text)
    return share if share < config.min_alphanumeric_share else None
