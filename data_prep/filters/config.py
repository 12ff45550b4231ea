"""Limits of the filter rules."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from cluster.config import Config
from data_prep.text.languages import all_languages, near_language

_LIMITS = (("min_file_bytes", "max_file_bytes"), ("min_comment_share", "max_comment_share"))
SkippableRule = Literal[
    "plain_text",
    "xml_in_disguise",
    "generated",
    "data_size",
    "line_count",
    "line_length",
    "mean_line_length",
    "minified",
    "control_characters",
    "alphanumeric_share",
    "letter_share",
    "encoded_data",
    "html_text",
]


class FiltersConfig(Config):
    """The rules' limits; the defaults are those published for The Stack, StarCoder and StarCoder2.

    Limits that are part of a rule's definition are constants beside the rule.
    """

    skip: tuple[SkippableRule, ...] = ()
    """Rules that are not applied, by the names the ledger shows."""
    min_file_bytes: int = Field(default=64, ge=0)
    max_file_bytes: int = Field(default=1 << 20, gt=0)
    languages: tuple[str, ...] | None = None
    """Only these languages are kept, named as GitHub does; None keeps every known one. Files in no known language are
    dropped either way."""
    max_lines: int = Field(default=100_000, gt=0)

    max_line_chars: int = Field(default=1000, gt=0)
    max_mean_line_chars: float = Field(default=100.0, gt=0)

    min_alphanumeric_share: float = Field(default=0.25, ge=0, le=1)
    min_letter_share: float = Field(default=0.25, ge=0, le=1)
    """Of letters only; files of numbers have enough letters and digits together."""

    min_comment_share: float | None = Field(default=None, ge=0, le=1)
    max_comment_share: float | None = Field(default=None, ge=0, le=1)
    """The share of comments; None: any. SantaCoder used 0.01 and 0.8."""
    parses: bool = False
    """Python must parse with the interpreter that runs the stage: about 8 MB/s per core."""
    max_parse_error_share: float | None = Field(default=None, ge=0, le=1)
    """The share of bytes in tree-sitter's error nodes: about 10 MB/s per core. None: any."""

    @field_validator("languages")
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
