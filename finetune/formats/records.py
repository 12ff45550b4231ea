"""Readers of records with named fields from JSON lines, JSON arrays and Parquet."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.errors import UserError, first_line
from finetune.formats.files import read_bytes, read_text


def read_jsonl(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield (place, value) of every line that is not blank. Raise UserError if a line is not JSON."""
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            yield f"{path} line {number}", parse_json(line, f"{path} line {number}")


def parse_json(text: str, where: str) -> Any:
    """Parse JSON. Raise UserError if the text is not JSON, or its nesting or numbers exceed Python's limits."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{where} is not JSON ({first_line(error)}): is the file of another format?"
        ) from None


def read_json_array(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield (place, value) of every item. Raise UserError if the file is not a JSON array."""
    items = parse_json(read_text(path), str(path))
    if not isinstance(items, list):
        raise UserError(f"{path} holds one JSON {type(items).__name__}, not an array of items")
    for number, item in enumerate(items, start=1):
        yield f"{path} item {number}", item


def read_parquet(
    path: Path, fields: Sequence[str], optional: Sequence[str] | None = ()
) -> Iterator[tuple[str, Any]]:
    """Yield (place, row) with these columns and the `optional` ones that exist; all columns if `optional` is None.

    Raise UserError if the file is not Parquet, lacks a column, or has an unreadable value.
    """
    try:
        table = pq.read_table(pa.BufferReader(read_bytes(path)))
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} is not a Parquet file ({first_line(error)})") from None
    missing = [field for field in fields if field not in table.column_names]
    if missing:
        raise UserError(
            f"{path} has no column {missing[0]!r}; it has "
            f"{', '.join(ascii(name)[1:-1] for name in table.column_names) or 'none'}"
        )
    if optional is not None:
        wanted = [*fields, *(name for name in optional if name in table.column_names)]
        table = table.select(list(dict.fromkeys(wanted)))
    try:
        rows = table.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise UserError(f"{path} has a value that cannot be read ({first_line(error)})") from None
    for number, row in enumerate(rows, start=1):
        yield f"{path} row {number}", row


Record = dict[str, Any]
_PARQUET_MAGIC = b"PAR1"


def read_records(
    path: Path, fields: Sequence[str], optional: Sequence[str] = (), *, keeps_others: bool = False
) -> list[Record]:
    """Return the named fields of every record of a JSON-lines, JSON-array or Parquet file, detected by its first bytes.

    `optional` fields are included if a record has them; with `keeps_others` all fields are, in their order. Raise
    UserError if the file is empty or of another format, or a record lacks a field.
    """
    records = []
    for where, value in _values(path, fields, None if keeps_others else optional):
        if not isinstance(value, dict):
            raise UserError(
                f"{where} is a JSON {type(value).__name__}, not an object with {', '.join(fields)}"
            )
        missing = [field for field in fields if field not in value]
        if missing:
            # A name may contain line ends and other characters that are not printable.
            names = ", ".join(ascii(name)[1:-1] for name in value) or "none"
            raise UserError(f"{where} has no field {missing[0]!r}; it has {names}")
        wanted = value if keeps_others else (*fields, *optional)
        records.append({field: value[field] for field in wanted if field in value})
    if not records:
        raise UserError(f"task file {path} is empty: it must have one record per line, item or row")
    return records


def read_text_pairs(path: Path, source: str, target: str) -> list[tuple[str, str]]:
    """Return two fields of every record as texts; a list of tokens is joined by single spaces."""
    records = read_records(path, (source, target))
    return [
        (_text(record[source], path, source, number), _text(record[target], path, target, number))
        for number, record in enumerate(records, start=1)
    ]


def _values(path: Path, fields: Sequence[str], optional: Sequence[str] | None) -> Iterator[tuple[str, Any]]:
    beginning = read_bytes(path)
    if beginning.startswith(_PARQUET_MAGIC):
        return read_parquet(path, fields, optional)
    if beginning.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"[":
        return read_json_array(path)
    return read_jsonl(path)


def _text(value: Any, path: Path, field: str, number: int) -> str:
    if isinstance(value, list) and all(isinstance(token, str) for token in value):
        value = " ".join(value)
    if not isinstance(value, str):
        raise UserError(
            f"{path} record {number}: field {field!r} must be a text or a list of tokens, "
            f"not {type(value).__name__}"
        )
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise UserError(f"{path} record {number}: field {field!r} holds half of a surrogate pair, not text")
    return value.strip()
