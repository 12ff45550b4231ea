"""Rules on the size of a file and the length of its lines: dumps of data and generated tables."""

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.text.file import TextFile

# Prose and markup, where a paragraph or a complete page may be one line. StarCoder2 exempts the first nine; the limit
# of the others was removed in The Stack's manual inspection. Their mean has no limit.
LONG_LINE_LANGUAGES = frozenset(
    {
        "HTML",
        "JSON",
        "Markdown",
        "Roff",
        "Roff Manpage",
        "SMT",
        "TeX",
        "Text",
        "XML",
        "BibTeX",
        "CMake",
        "Jupyter Notebook",
        "MATLAB",
        "R",
        "RMarkdown",
        "reStructuredText",
        "SQL",
        "Stata",
        "SVG",
    }
)
_MAX_LONG_LINE_CHARS = 100_000
# StarCoder2's limits for languages of data: lines, and characters of two of them.
DATA_LANGUAGES = frozenset({"Text", "JSON", "YAML", "Web Ontology Language", "Graphviz (DOT)", "CSV", "TSV"})
_MAX_DATA_LINES = 512
SIZED_DATA_LANGUAGES = frozenset({"JSON", "YAML"})
_MIN_DATA_CHARS = 100
_MAX_DATA_CHARS = 5000


def size_rejection(num_bytes: int, config: FiltersConfig) -> Rejection | None:
    """Apply the rule to a size only, for files that have not been read yet."""
    if config.min_file_bytes <= num_bytes <= config.max_file_bytes:
        return None
    return Rejection("file_size", float(num_bytes))


def file_size(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject texts of fewer than `min_file_bytes` or more than `max_file_bytes` bytes."""
    return size_rejection(len(file.data), config)


def data_size(file: TextFile, _: FiltersConfig) -> Rejection | None:
    """Reject JSON and YAML of fewer than 100 or more than 5,000 characters."""
    if file.language not in SIZED_DATA_LANGUAGES:
        return None
    if _MIN_DATA_CHARS <= file.num_chars <= _MAX_DATA_CHARS:
        return None
    return Rejection("data_size", float(file.num_chars))


def line_count(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject more lines than `max_lines`, or than 512 in languages of data."""
    limit = config.max_lines
    if file.language in DATA_LANGUAGES:
        limit = min(limit, _MAX_DATA_LINES)
    return Rejection("line_count", float(file.num_lines)) if file.num_lines > limit else None


def line_length(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject a line of more than `max_line_chars` characters; in prose and markup, of more than 100,000.

    The value is the length of the longest line, the detail its number.
    """
    limit = config.max_line_chars
    if file.language in LONG_LINE_LANGUAGES:
        limit = _MAX_LONG_LINE_CHARS
    # Bytes are never fewer than characters, so for most files this check is enough.
    if not file.num_lines or int(file.line_bytes.max()) <= limit:
        return None
    line = int(file.line_chars.argmax())
    longest = int(file.line_chars[line])
    return Rejection("line_length", float(longest), f"line {line + 1}") if longest > limit else None


def mean_line_length(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject a mean number of characters per line, without line ends, above `max_mean_line_chars`."""
    if not file.num_lines or file.language in LONG_LINE_LANGUAGES:
        return None
    num_line_ends = file.num_lines - (not file.data.endswith(b"\n"))
    mean = (file.num_chars - num_line_ends) / file.num_lines
    return Rejection("mean_line_length", mean) if mean > config.max_mean_line_chars else None
