"""Storage of files between reading and writing shards: one Arrow file (part) per work unit, memory-mapped."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cluster.storage import atomic_file
from data_prep.documents import Rejection

# Rows are written when their texts reach this size, which bounds a worker's memory for any unit.
_BATCH_TEXT_BYTES = 16 << 20
_BATCH_ROWS = 16_384
_MAX_OPEN_PARTS = 256


@dataclass(slots=True)
class ReadFile:
    """The result of reading one file of a source: one row of a part, filled in step by step.

    `text` is UTF-8, redacted, and None if a rule dropped the file. `imports` are the targets of its imports, as
    written. `bands` are its MinHash band keys (uint64 [num_bands] as bytes).
    """

    repository: str
    path: str
    location: str
    num_bytes: int
    language: str
    id: str = ""
    licence: str | None = None
    repository_licence: str | None = None
    stars: int | None = None
    rule: str | None = None
    value: float | None = None
    detail: str | None = None
    flags: str | None = None
    redactions: str | None = None
    num_text_bytes: int | None = None
    sha256: str | None = None
    imports: tuple[str, ...] = ()
    bands: bytes | None = None
    text: bytes | None = None

    def drop(self, rejection: Rejection) -> "ReadFile":
        """Record why the file is dropped, remove its text and return the row."""
        self.rule, self.value, self.detail = rejection.rule, rejection.value, rejection.detail
        self.text = None
        return self


_SCHEMA = pa.schema(
    [
        ("repository", pa.string()),
        ("path", pa.string()),
        ("location", pa.string()),
        ("num_bytes", pa.int64()),
        ("language", pa.string()),
        ("id", pa.string()),
        ("licence", pa.string()),
        ("repository_licence", pa.string()),
        ("stars", pa.int64()),
        ("rule", pa.string()),
        ("value", pa.float64()),
        ("detail", pa.string()),
        ("flags", pa.string()),
        ("redactions", pa.string()),
        ("num_text_bytes", pa.int64()),
        ("sha256", pa.string()),
        ("imports", pa.list_(pa.string())),
        ("bands", pa.binary()),
        ("text", pa.large_binary()),
    ]
)


def write_part(path: Path, files: Iterable[ReadFile]) -> None:
    """Write one row per file, in the order given; at most one batch of texts is in memory."""
    with atomic_file(path) as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
        batch: list[ReadFile] = []
        num_bytes = 0
        for file in files:
            batch.append(file)
            num_bytes += len(file.text or b"")
            if num_bytes >= _BATCH_TEXT_BYTES or len(batch) >= _BATCH_ROWS:
                writer.write_batch(_record_batch(batch))
                batch, num_bytes = [], 0
        if batch:
            writer.write_batch(_record_batch(batch))


class Part:
    """A written part. Columns are read from the mapped file on demand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with pa.memory_map(str(path)) as source:
            self._table: Any = pa.ipc.open_file(source).read_all()

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def imports(self) -> Any:
        """Return the `imports` column."""
        return self._table.column("imports")

    def bands(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the band keys of rows, all of which must have some, shape [len(rows), num_bands]."""
        if not len(rows):
            return np.empty((0, 0), np.uint64)
        taken = self._table.column("bands").take(pa.array(rows)).to_pylist()
        return np.frombuffer(b"".join(taken), np.uint64).reshape(len(rows), -1)

    def text(self, row: int) -> bytes:
        """Return the text of a row that has one."""
        text: bytes = self._table.column("text")[row].as_py()
        return text


def read_columns(path: Path) -> Any:
    """Return a part's table without texts, imports and bands, and with `is_signed`: whether there are bands.

    It is copied: a view would keep the complete part mapped, and a process can map only some ten thousand files.
    """
    wanted = [number for number, name in enumerate(_SCHEMA.names) if name not in ("imports", "text")]
    with pa.memory_map(str(path)) as source:
        options = pa.ipc.IpcReadOptions(included_fields=wanted)
        table = pa.ipc.open_file(source, options=options).read_all()
        is_signed = pc.is_valid(table.column("bands"))
        table = table.drop_columns(["bands"]).append_column("is_signed", is_signed)
        return table.take(pa.array(np.arange(table.num_rows)))


def count_rows(path: Path) -> tuple[int, int]:
    """Return the number of rows of a part, and of those that no rule has dropped."""
    rules = Part(path)._table.column("rule")
    return len(rules), int(rules.null_count)


def read_texts(refs: Iterable[tuple[Path, int]]) -> Iterator[bytes]:
    """Yield the texts of (part, row), in order; at most 256 parts are open at a time."""
    parts: dict[Path, Part] = {}
    for path, row in refs:
        part = parts.get(path)
        if part is None:
            if len(parts) == _MAX_OPEN_PARTS:
                del parts[next(iter(parts))]
            part = parts[path] = Part(path)
        yield part.text(row)


def _record_batch(files: list[ReadFile]) -> Any:
    names = [field.name for field in fields(ReadFile)]
    columns = [pa.array([getattr(file, name) for file in files], _SCHEMA.field(name).type) for name in names]
    return pa.record_batch(columns, schema=_SCHEMA)
