"""What became of every file, as Parquet."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet

from cluster.storage import write_bytes

_ARROW_TYPES = {
    "num_bytes": pa.int64(),
    "num_text_bytes": pa.int64(),
    "num_tokens": pa.int64(),
    "value": pa.float64(),
}


@dataclass(frozen=True)
class LedgerRow:
    """One listed file. `num_bytes` is its size on disk; `num_text_bytes` and `sha256` are of its text in
    UTF-8, known once it was read. A dropped file has the `rule` and the `value` it was dropped for, a
    duplicate the file it repeats; a kept one its split and tokens (end-of-document token included)."""

    source: str
    repository: str
    path: str
    language: str
    num_bytes: int
    num_text_bytes: int | None
    sha256: str | None
    fate: Literal["kept", "dropped"]
    rule: str | None
    value: float | None
    duplicate_of: str | None
    split: str | None
    num_tokens: int | None


def write_ledger(path: Path, rows: Sequence[LedgerRow]) -> None:
    """Write the rows, in their order; the same rows give the same bytes."""
    schema = pa.schema(
        [(field.name, _ARROW_TYPES.get(field.name, pa.string())) for field in fields(LedgerRow)]
    )
    table = pa.table([[getattr(row, field.name) for row in rows] for field in schema], schema=schema)
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(table, sink, compression="zstd")
    write_bytes(path, sink.getvalue().to_pybytes())


def read_ledger(path: Path) -> list[LedgerRow]:
    """The rows as written."""
    return [LedgerRow(**row) for row in pa.parquet.read_table(path).to_pylist()]


def dropped_by_rule(rows: Sequence[LedgerRow]) -> dict[str, int]:
    """Number of files dropped by each rule that dropped any, most first."""
    return dict(Counter(row.rule for row in rows if row.rule is not None).most_common())
