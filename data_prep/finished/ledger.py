"""The ledger: the decision on every file, as Parquet."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from cluster.storage import atomic_file

# One row per file of a source, in the order (source, repository, path, location):
#   num_bytes           size in the source
#   num_text_bytes, sha256   of the text in UTF-8 as it would be stored; null if the file was not decoded
#   decision            "kept" or "dropped"; a dropped file has the rule, its value and a detail
#   duplicate_of        the file that a duplicate is a copy of, as "source:repository:path"
#   cluster             id of the kept document whose near-duplicate cluster the file belongs to
#   flags, redactions   what decoding found ("bidi utf16") and redaction replaced ("email:2 key:1")
#   split, block, num_tokens   of kept files: their place and length (including the end-of-document token)
LEDGER_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("repository", pa.string()),
        ("path", pa.string()),
        ("location", pa.string()),
        ("language", pa.string()),
        ("licence", pa.string()),
        ("stars", pa.int64()),
        ("num_bytes", pa.int64()),
        ("num_text_bytes", pa.int64()),
        ("sha256", pa.string()),
        ("decision", pa.string()),
        ("rule", pa.string()),
        ("value", pa.float64()),
        ("detail", pa.string()),
        ("duplicate_of", pa.string()),
        ("cluster", pa.string()),
        ("flags", pa.string()),
        ("redactions", pa.string()),
        ("split", pa.string()),
        ("block", pa.string()),
        ("num_tokens", pa.int64()),
    ]
)
_ROW_GROUP_ROWS = 1 << 16


def write_ledger(path: Path, table: Any) -> None:
    """Write a table of `LEDGER_SCHEMA`; the same rows give the same bytes."""
    with (
        atomic_file(path) as file,
        pa.parquet.ParquetWriter(file, LEDGER_SCHEMA, compression="zstd", store_schema=False) as writer,
    ):
        for start in range(0, max(1, table.num_rows), _ROW_GROUP_ROWS):
            rows = table.select(LEDGER_SCHEMA.names).slice(start, _ROW_GROUP_ROWS)
            writer.write_table(rows.cast(LEDGER_SCHEMA))


def read_ledger(path: Path, columns: list[str] | None = None) -> Any:
    """Return the ledger as a pyarrow table, in the order written; `columns` None means all."""
    return pa.parquet.read_table(path, columns=columns)


def dropped_by_rule(table: Any) -> dict[str, int]:
    """Return the number of files dropped by each rule that dropped any, most first, then by name."""
    rules = table.column("rule").drop_null()
    counts = [(str(entry["values"]), int(entry["counts"])) for entry in pc.value_counts(rules).to_pylist()]
    return dict(sorted(counts, key=lambda item: (-item[1], item[0])))
