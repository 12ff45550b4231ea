"""The rules in the order in which they are tried: cheap ones first, parsing last.

To add a rule, write a module and add its function to `_ORDER`.
"""

from collections.abc import Callable

from data_prep.documents import Rejection
from data_prep.filters.alphanumeric_share import alphanumeric_share
from data_prep.filters.comment_share import comment_share
from data_prep.filters.config import FiltersConfig
from data_prep.filters.control_characters import control_characters
from data_prep.filters.data_size import data_size
from data_prep.filters.encoded_data import encoded_data
from data_prep.filters.file_size import file_size
from data_prep.filters.generated import generated
from data_prep.filters.html_text import html_text
from data_prep.filters.language import language
from data_prep.filters.letter_share import letter_share
from data_prep.filters.line_count import line_count
from data_prep.filters.line_length import line_length
from data_prep.filters.mean_line_length import mean_line_length
from data_prep.filters.minified import minified
from data_prep.filters.parse_errors import parse_errors
from data_prep.filters.parses import parses
from data_prep.filters.plain_text import plain_text
from data_prep.filters.xml_in_disguise import xml_in_disguise
from data_prep.text.file import TextFile

# A rule is a pure function of a file; its rejections have its name.
Rule = Callable[[TextFile, FiltersConfig], Rejection | None]

_ORDER: tuple[Rule, ...] = (
    file_size,
    language,
    plain_text,
    xml_in_disguise,
    generated,
    data_size,
    line_count,
    line_length,
    mean_line_length,
    minified,
    control_characters,
    alphanumeric_share,
    letter_share,
    encoded_data,
    html_text,
    comment_share,
    parse_errors,
    parses,
)
RULES: dict[str, Rule] = {rule.__name__: rule for rule in _ORDER}


def first_rejection(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Return the rejection of the first rule that drops the file; None if the file is kept."""
    for rule in _ORDER:
        rejection = rule(file, config)
        if rejection is not None:
            return rejection
    return None
