"""The rules in the order they are tried: cheap ones first, parsing last."""

from collections.abc import Callable

from data_prep.config import FiltersConfig
from data_prep.decoding import DecodedFile
from data_prep.filters.alphanumeric_share import alphanumeric_share
from data_prep.filters.line_length import line_length
from data_prep.filters.mean_line_length import mean_line_length
from data_prep.filters.parses import parses

# A rule returns None to keep the file, or the value for which it is dropped.
Rule = Callable[[DecodedFile, FiltersConfig], float | None]

RULES: dict[str, Rule] = {
    "line_length": line_length,
    "mean_line_length": mean_line_length,
    "alphanumeric_share": alphanumeric_share,
    "parses": parses,
}


def first_rejection(file: DecodedFile, config: FiltersConfig) -> tuple[str, float] | None:
    """The first rule that drops the file, with its value; None when the file is kept."""
    for name, rule in RULES.items():
        value = rule(file, config)
        if value is not None:
            return name, value
    return None
