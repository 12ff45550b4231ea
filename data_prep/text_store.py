"""The kept texts between reading and tokenising: Arrow files, memory-mapped, one per partition."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from cluster.storage import write_bytes

_SCHEMA = pa.schema(
    [
        ("text", pa.large_string()),
        ("num_text_bytes", pa.int64()),
        ("sha256", pa.string()),
        ("rule", pa.string()),
        ("value", pa.float64()),
    ]
)


@dataclass(frozen=True)
class TextRef:
    """Where a text lies: row `row` of the Arrow file `partition`."""

    partition: str
    row: int


@dataclass(frozen=True)
class ReadOutcome:
    """What reading made of one file. `rule` and `value` say why it was dropped; `text` is None then."""

    text: str | None
    num_text_bytes: int
    sha256: str | None
    rule: str | None = None
    value: float | None = None


def write_outcomes(path: Path, outcomes: Sequence[ReadOutcome]) -> None:
    """Write a partition, one row per file in the order given."""
    columns = [[getattr(outcome, field.name) for outcome in outcomes] for field in _SCHEMA]
    table = pa.table(columns, schema=_SCHEMA)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, _SCHEMA) as writer:
        writer.write_table(table)
    write_bytes(path, sink.getvalue().to_pybytes())


def read_outcomes(path: Path) -> list[ReadOutcome]:
    """The rows of a partition without their texts (`text` is None throughout)."""
    table = _open(str(path)).drop_columns(["text"])
    rows: list[dict[str, Any]] = table.to_pylist()
    return [ReadOutcome(text=None, **row) for row in rows]


def read_texts(refs: Sequence[TextRef]) -> Iterator[str]:
    """The texts, in the order of `refs`; only one partition is open at a time."""
    partition = ""
    column: Any = None
    for ref in refs:
        if ref.partition != partition:
            partition = ref.partition
            column = _open(partition).column("text")
        yield column[ref.row].as_py()


def _open(path: str) -> Any:
    with pa.memory_map(path) as source:
        return pa.ipc.open_file(source).read_all()
