"""Rule on the share of syntax errors: drops templates, other dialects and broken files."""

from functools import cache

from tree_sitter import Query

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.filters.syntax import grammar, num_captured_bytes, syntax_root
from data_prep.text.file import TextFile


def parse_errors(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject a share of bytes in error nodes above `max_parse_error_share`; languages without a grammar pass."""
    if config.max_parse_error_share is None or not file.data:
        return None
    root = syntax_root(file)
    if root is None or file.language is None or not root.has_error:
        return None
    share = num_captured_bytes(root, _errors(file.language)) / len(file.data)
    return Rejection("parse_errors", share) if share > config.max_parse_error_share else None


@cache
def _errors(language: str) -> Query:
    return Query(grammar(language), "(ERROR) @error")
