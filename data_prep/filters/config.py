"""Limits of the filter rules."""

from pydantic import Field, field_validator, model_validator

from cluster.config import Config
from data_prep.text.languages import all_languages, near_language

# Prose and markup, where a paragraph or a complete page may be one line. StarCoder2 exempts the first nine; the limit
# of the others was removed in The Stack's manual inspection.
_LONG_LINES = (
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
)
_DATA_LANGUAGES = ("Text", "JSON", "YAML", "Web Ontology Language", "Graphviz (DOT)", "CSV", "TSV")
_LIMITS = (
    ("min_file_bytes", "max_file_bytes"),
    ("min_data_chars", "max_data_chars"),
    ("min_comment_share", "max_comment_share"),
)
_PLAIN_TEXT_NAMES = ("requirement", "readme", "notes", "todo", "description", "cmakelists")


class FiltersConfig(Config):
    """The rules' limits; the defaults are those published for The Stack, StarCoder and StarCoder2.

    None disables a rule where None is allowed. Languages are named as in `data_prep.text.languages`.
    """

    min_file_bytes: int = Field(default=64, ge=0)
    max_file_bytes: int = Field(default=1 << 20, gt=0)
    # Only these languages are kept; None keeps every known one. Unknown languages are dropped either way.
    languages: tuple[str, ...] | None = None
    max_lines: int | None = Field(default=100_000, gt=0)

    max_line_chars: int = Field(default=1000, gt=0)
    max_mean_line_chars: float = Field(default=100.0, gt=0)
    # Languages without a limit on the mean, and with a separate limit on the longest line.
    long_line_languages: tuple[str, ...] = _LONG_LINES
    long_line_max_chars: int = Field(default=100_000, gt=0)

    min_alphanumeric_share: float = Field(default=0.25, ge=0, le=1)
    # Of letters only; files of numbers pass the rule above.
    min_letter_share: float = Field(default=0.25, ge=0, le=1)
    # The same for JSON and YAML. StarCoder used 0.5, which drops every second package.json for its indentation;
    # StarCoder2 used 0.25 for all.
    min_letter_share_of_data: float = Field(default=0.25, ge=0, le=1)

    # Of control characters; tab, line ends, form feed, backspace and escape do not count as such.
    max_control_share: float = Field(default=0.01, ge=0, le=1)

    # Encoded data (base64, hexadecimal bytes, \u escapes): the longest run in characters, and the share of the
    # file in such runs.
    max_encoded_chars: int | None = Field(default=1024, gt=0)
    max_encoded_share: float = Field(default=0.5, ge=0, le=1)

    # Data languages: the number of lines, and for `sized_data_languages` the number of characters.
    data_languages: tuple[str, ...] = _DATA_LANGUAGES
    max_data_lines: int | None = Field(default=512, gt=0)
    sized_data_languages: tuple[str, ...] = ("JSON", "YAML")
    min_data_chars: int = Field(default=100, ge=0)
    max_data_chars: int = Field(default=5000, gt=0)
    # Plain text is kept if its name contains the first of these or is one of the others; None keeps all.
    plain_text_names: tuple[str, ...] | None = _PLAIN_TEXT_NAMES

    # HTML must have visible text.
    min_html_text_share: float = Field(default=0.2, ge=0, le=1)
    min_html_text_chars: int = Field(default=100, ge=0)

    drop_xml_in_disguise: bool = True
    drop_minified: bool = True
    drop_generated: bool = True

    # The share of comments (SantaCoder: 0.01 and 0.8).
    min_comment_share: float | None = Field(default=None, ge=0, le=1)
    max_comment_share: float | None = Field(default=None, ge=0, le=1)
    # Python must parse with the interpreter that runs the stage: about 8 MB/s per core.
    parses: bool = False
    # The share of bytes in tree-sitter's error nodes: about 10 MB/s per core.
    max_parse_error_share: float | None = Field(default=None, ge=0, le=1)

    @field_validator("languages", "long_line_languages", "data_languages", "sized_data_languages")
    @classmethod
    def _are_languages(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in names or ():
            if name not in all_languages():
                near = near_language(name)
                hint = f"did you mean {near!r}?" if near else "write it as GitHub does (Python, C++)"
                raise ValueError(f"{name!r} is not a known language: {hint}")
        return names

    @model_validator(mode="after")
    def _limits_leave_room(self) -> "FiltersConfig":
        for least, most in _LIMITS:
            low, high = getattr(self, least), getattr(self, most)
            if low is not None and high is not None and low > high:
                raise ValueError(f"{least}={low} must not exceed {most}={high}")
        return self
