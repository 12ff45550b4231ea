"""Rule on the longest line: drops minified code and embedded data."""

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import TextFile


def line_length(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject a line of more than `max_line_chars` characters, or in `long_line_languages` `long_line_max_chars`.

    The value is the length of the longest line, the detail its number.
    """
    limit = config.max_line_chars
    if file.language in config.long_line_languages:
        limit = config.long_line_max_chars
    # Bytes are never fewer than characters, so for most files this check is enough.
    if not file.num_lines or int(file.line_bytes.max()) <= limit:
        return None
    line = int(file.line_chars.argmax())
    longest = int(file.line_chars[line])
    return Rejection("line_length", float(longest), f"line {line + 1}") if longest > limit else None
