"""Records with named fields, in whichever of the known formats a file is."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cluster.errors import UserError
from finetune.formats.files import read_bytes
from finetune.formats.json_array import read_json_array
from finetune.formats.jsonl import read_jsonl
from finetune.formats.parquet import read_parquet

Record = dict[str, Any]
_PARQUET_MAGIC = b"PAR1"


def read_records(
    path: Path, fields: Sequence[str], optional: Sequence[str] = (), *, keeps_others: bool = False
) -> list[Record]:
    """The named fields of every record of a JSON-lines, JSON-array or Parquet file, told apart by its first bytes.

    `optional` fields are read where they are; with `keeps_others` all are, in their order. UserError when the file is
    empty or of another format, or a record lacks a field.
    """
    records = []
    for where, value in _values(path, fields, None if keeps_others else optional):
        if not isinstance(value, dict):
            raise UserError(
                f"{where} is a JSON {type(value).__name__}, not an object with {', '.join(fields)}"
            )
        missing = [field for field in fields if field not in value]
        if missing:
            # A name may hold line ends and other characters that are not to be seen.
            names = ", ".join(ascii(name)[1:-1] for name in value) or "none"
            raise UserError(f"{where} has no field {missing[0]!r}; it has {names}")
        wanted = value if keeps_others else (*fields, *optional)
        records.append({field: value[field] for field in wanted if field in value})
    if not records:
        raise UserError(f"task file {path} is empty: it must have one record per line, item or row")
    return records


def read_text_pairs(path: Path, source: str, target: str) -> list[tuple[str, str]]:
    """Two fields of every record as texts; a list of tokens becomes its tokens with single spaces between."""
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
