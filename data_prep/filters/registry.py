"""The rules in the order in which they are tried: cheap ones first, parsing last.

To add a rule, write its function and add it to `_ORDER`, and to `SkippableRule` if it can be skipped.
"""

from collections.abc import Callable

from data_prep.documents import Rejection
from data_prep.filters.characters import alphanumeric_share, control_characters, encoded_data, letter_share
from data_prep.filters.config import FiltersConfig
from data_prep.filters.generated import generated
from data_prep.filters.languages import comment_share, language, parse_errors, parses
from data_prep.filters.lines import data_size, file_size, line_count, line_length, mean_line_length
from data_prep.filters.markup import html_text, plain_text, xml_in_disguise
from data_prep.filters.minified import minified
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
    for name, rule in RULES.items():
        if name in config.skip:
            continue
        rejection = rule(file, config)
        if rejection is not None:
            return rejection
    return None
