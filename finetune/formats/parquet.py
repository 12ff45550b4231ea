"""Rows of a Parquet file."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.errors import UserError, first_line
from finetune.formats.files import read_bytes


def read_parquet(
    path: Path, fields: Sequence[str], optional: Sequence[str] | None = ()
) -> Iterator[tuple[str, Any]]:
    """(where it stands, row with these columns, and of the `optional` ones those there are; with None, all columns).

    UserError when the file is no Parquet or lacks a column.
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
