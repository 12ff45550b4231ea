"""Readers of retrieval data: functions with queries (CoSQA), and programs labelled by problem (POJ-104)."""

import ast
import itertools
import re
import textwrap
import warnings
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import UserError
from finetune.formats.files import read_text
from finetune.formats.labelled import check_characters
from finetune.formats.records import Record, parse_json, read_records

_STRING_AFTER_HEAD = re.compile(r'(:[^\n]*\n\s*)[rRuUbB]{0,2}("""|\'\'\')(.*?)\2', re.DOTALL)


@dataclass(frozen=True)
class Query:
    """A query's text and the number of the function that it should find."""

    key: str
    text: str
    number: int


@dataclass(frozen=True)
class LabelledCode:
    """A program, labelled with the problem that it solves."""

    code: str
    label: str
    language: str | None


def read_base(path: Path) -> list[str]:
    """Return the functions of CoSQA's `code_idx_map.txt`, one JSON object from code to number, by number.

    Raise UserError if the file has another form, or the numbers are not 0, 1, ... without a gap.
    """
    found = parse_json(read_text(path), str(path))
    if not isinstance(found, dict) or not found:
        raise UserError(
            f"{path} must hold one JSON object from code to number, as CoSQA's code_idx_map.txt does"
        )
    numbers = list(found.values())
    if any(type(number) is not int for number in numbers) or sorted(numbers) != list(range(len(numbers))):
        raise UserError(
            f"{path}: the numbers of the {len(numbers)} functions must be 0 to {len(numbers) - 1}"
        )
    codes = [""] * len(numbers)
    for code, number in found.items():
        check_characters(code, f"{path}: function {number}")
        codes[number] = code
    return codes


def read_queries(path: Path, num_candidates: int) -> list[Query]:
    """Return CoSQA's queries. Raise UserError if a record lacks a field or names a function that is not in the base."""
    queries = []
    for number, record in enumerate(read_records(path, ("idx", "doc", "retrieval_idx")), start=1):
        wanted = record["retrieval_idx"]
        if type(wanted) is not int or not 0 <= wanted < num_candidates:
            raise UserError(
                f"{path} record {number}: retrieval_idx is {wanted!r}, but the base has functions 0 to "
                f"{num_candidates - 1}: is it another base's file?"
            )
        text = _text(record, "doc", path, number)
        queries.append(Query(str(record["idx"]), text, wanted))
    return queries


def read_labelled_code(path: Path, label: str, code: str, language: str | None = None) -> list[LabelledCode]:
    """Return the programs, read from the named fields; labels may be texts or whole numbers, `language` may be None.

    Raise UserError if a record has another form.
    """
    fields = [label, code] + ([language] if language else [])
    found = []
    for number, record in enumerate(read_records(path, fields), start=1):
        name = record[label]
        if isinstance(name, bool) or not isinstance(name, int | str) or name == "":
            raise UserError(
                f"{path} record {number}: {label!r} must be a text or a whole number, not {name!r}"
            )
        tongue = _text(record, language, path, number) if language else None
        found.append(LabelledCode(_text(record, code, path, number), str(name), tongue))
    return found


def without_docstrings(code: str) -> str:
    """Remove the docstring of a Python function, other strings that are statements, and blank lines.

    If Python 3 cannot parse the code, remove only the first triple-quoted string that begins the line after a colon.
    """
    # Python's lexer also ends lines at these.
    code = textwrap.dedent(code.replace("\r\n", "\n").replace("\r", "\n"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _STRING_AFTER_HEAD.sub(r"\1", code, count=1)
    # The columns of ast are UTF-8 bytes.
    lines = code.encode().split(b"\n")
    starts = [0, *itertools.accumulate(len(line) + 1 for line in lines)]
    data = b"\n".join(lines)
    for node in sorted(_bare_strings(tree), key=lambda node: (node.lineno, node.col_offset), reverse=True):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first = starts[node.lineno - 1] + node.col_offset
        data = data[:first] + data[starts[node.end_lineno - 1] + node.end_col_offset :]
    return "\n".join(line for line in data.decode().split("\n") if line.strip())


def _bare_strings(tree: ast.Module) -> list[ast.Expr]:
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]


def _text(record: Record, field: str, path: Path, number: int) -> str:
    value = record[field]
    if not isinstance(value, str) or not value.strip():
        raise UserError(
            f"{path} record {number}: {field!r} must be a text that is not empty, not {value!r:.40}"
        )
    check_characters(value, f"{path} record {number}")
    return value
