"""Extraction of documented functions from Python source, for code search and generation."""

import ast
import inspect
import textwrap
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class SearchPair:
    """A docstring's first paragraph and its function without the docstring."""

    query: str
    code: str


def documented_functions(text: str) -> list[SearchPair]:
    """Return every function and method of a module that has a docstring; [] if the text does not parse.

    The query is the first paragraph with its white space normalised. The code is the dedented signature and body,
    without docstring and decorators. A nested function is part of the outer one.
    """
    tree = _tree(text)
    if tree is None:
        return []
    lines = _lines(text)
    return [pair for node in _functions(tree) if (pair := _pair(node, lines)) is not None]


def documented_bodies(text: str) -> list[tuple[str, str]]:
    """Return (head and docstring, rest of the body) of the same functions, dedented, both with a line end.

    Functions are skipped if the body is only the docstring, or begins on the docstring's last line.
    """
    tree = _tree(text)
    if tree is None:
        return []
    lines = _lines(text)
    found = []
    for node in _functions(tree):
        if not ast.get_docstring(node) or len(node.body) < 2:
            continue
        docstring_end, first = node.body[0].end_lineno, node.body[1].lineno
        if docstring_end is None or first <= docstring_end or node.body[0].lineno == node.lineno:
            continue
        head = b"\n".join(lines[node.lineno - 1 : docstring_end]).decode()
        body = b"\n".join(lines[docstring_end : node.end_lineno]).decode()
        both = textwrap.dedent(f"{head}\n{body}\n").split("\n")
        place = head.count("\n") + 1
        found.append(("\n".join(both[:place]) + "\n", "\n".join(both[place:])))
    return found


def _tree(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _lines(text: str) -> list[bytes]:
    """Split the text into the rows of `ast`: these end where Python's lexer ends lines, and columns are UTF-8 bytes."""
    return text.encode().replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


_MIN_QUERY_WORDS = 3
_MIN_CODE_LINES = 3


def distinct_pairs(pairs: Iterable[SearchPair], seen: Iterable[SearchPair] = ()) -> list[SearchPair]:
    """Return the pairs that can be searched for, in order.

    Filter out queries of fewer than three words, functions of fewer than three non-blank lines, and pairs whose query
    or code equals (ignoring case and white space) an earlier one or one of `seen`.
    """
    queries = {_key(pair.query) for pair in seen}
    codes = {_key(pair.code) for pair in seen}
    kept = []
    for pair in pairs:
        query, code = _key(pair.query), _key(pair.code)
        num_lines = sum(bool(line.strip()) for line in pair.code.splitlines())
        if len(query.split()) < _MIN_QUERY_WORDS or num_lines < _MIN_CODE_LINES:
            continue
        if query not in queries and code not in codes:
            kept.append(pair)
        queries.add(query)
        codes.add(code)
    return kept


def _key(text: str) -> str:
    return " ".join(text.casefold().split())


def _functions(node: ast.AST) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield child
        elif isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from _functions(child)


def _pair(node: Function, lines: list[bytes]) -> SearchPair | None:
    docstring = ast.get_docstring(node, clean=False)
    if not docstring or node.end_lineno is None:
        return None
    first_paragraph = takewhile(str.strip, inspect.cleandoc(docstring).splitlines())
    query = " ".join(" ".join(first_paragraph).split())
    expression = node.body[0]
    assert expression.end_lineno is not None
    assert expression.end_col_offset is not None
    head = [
        *lines[node.lineno - 1 : expression.lineno - 1],
        lines[expression.lineno - 1][: expression.col_offset],
    ]
    tail = [lines[expression.end_lineno - 1][expression.end_col_offset :]]
    tail += lines[expression.end_lineno : node.end_lineno]
    code = b"\n".join(head).decode() + b"\n".join(tail).decode()
    code = "\n".join(line.rstrip() for line in code.split("\n") if line.strip())
    return SearchPair(query, textwrap.dedent(code)) if query else None
