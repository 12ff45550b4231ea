"""Rules on a file's language: configured languages, comments, and files that do not parse."""

import ast
import warnings
from functools import cache

from tree_sitter import Query

from data_prep.documents import Rejection
from data_prep.filters.config import FiltersConfig
from data_prep.filters.syntax import grammar, num_captured_bytes, syntax_root
from data_prep.text.file import TextFile


def language(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject files of an unknown language or one that is not in `languages`; the detail names it."""
    if file.language is not None and (config.languages is None or file.language in config.languages):
        return None
    return Rejection("language", None, file.language or "unknown")


# Strings that are statements: docstrings, and code that is commented out by quotes.
_DOCSTRINGS = "(module (string) @comment) (block (string) @comment)"


def comment_share(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject a share of bytes in comments below `min_comment_share` or above `max_comment_share`.

    In Python docstrings count as comments. Languages without a grammar, or without comments in it, pass.
    """
    least, most = config.min_comment_share, config.max_comment_share
    if (least is None and most is None) or file.language is None or not file.data:
        return None
    root = syntax_root(file)
    query = None if root is None else _comments(file.language)
    if root is None or query is None:
        return None
    share = num_captured_bytes(root, query) / len(file.data)
    kept = (least is None or share >= least) and (most is None or share <= most)
    return None if kept else Rejection("comment_share", share)


@cache
def _comments(language: str) -> Query | None:
    rules = grammar(language)
    kinds = {
        rules.node_kind_for_id(kind) or ""
        for kind in range(rules.node_kind_count)
        if rules.node_kind_is_named(kind) and rules.node_kind_is_visible(kind)
    }
    names = sorted(kind for kind in kinds if "comment" in kind)
    if not names:
        return None
    return Query(
        rules, "\n".join(f"({name}) @comment" for name in names) + _DOCSTRINGS * (language == "Python")
    )


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


def parses(file: TextFile, config: FiltersConfig) -> Rejection | None:
    """Reject Python with a syntax error; the value is its line (0 if the parser names none)."""
    if not config.parses or file.language != "Python":
        return None
    try:
        with warnings.catch_warnings():
            # Old escapes in strings cause warnings, but the code is valid.
            warnings.simplefilter("ignore")
            ast.parse(file.text)
    except SyntaxError as error:
        return Rejection("parses", float(error.lineno or 0))
    except (ValueError, RecursionError, MemoryError):
        # Null bytes, or expressions nested too deeply for the parser's stack.
        return Rejection("parses", 0.0)
    return None
