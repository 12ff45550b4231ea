"""All files that were read, as one table in the driver; texts stay in the parts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data_prep.corpus.text_store import read_columns

_ORDER = ("source", "repository", "path", "location")


@dataclass(frozen=True)
class Corpus:
    """One row per file of a source, ordered by source, repository, path and location.

    `table` has the columns of `text_store.ReadFile` except text, imports and bands, and `source`. Row i is
    row `row[i]` of the part `parts[part[i]]`.
    """

    table: Any
    parts: tuple[Path, ...]
    part: NDArray[np.int32]
    row: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def with_licences(self, licences: Sequence[str | None]) -> "Corpus":
        """Return the corpus with another `licence` column."""
        position = self.table.schema.get_field_index("licence")
        return replace(
            self, table=self.table.set_column(position, "licence", pa.array(licences, pa.large_string()))
        )

    def strings(self, column: str) -> NDArray[np.object_]:
        """Return a column as Python strings, None for nulls; equal strings are one object."""
        encoded = self.table.column(column).combine_chunks().dictionary_encode()
        words = np.array([*encoded.dictionary.to_pylist(), None], dtype=object)
        codes = encoded.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)
        chosen: NDArray[np.object_] = words[codes]
        return chosen

    def integers(self, column: str) -> NDArray[np.int64]:
        """Return a column of integers, 0 for nulls."""
        filled = pc.fill_null(self.table.column(column), 0)
        numbers: NDArray[np.int64] = filled.to_numpy().astype(np.int64, copy=False)
        return numbers


def load_corpus(parts: Sequence[tuple[str, Path]]) -> Corpus:
    """Load the corpus of the parts, given as (source's name, file)."""
    tables, part, row = [], [], []
    for number, (source, path) in enumerate(parts):
        table = read_columns(path)
        names = pa.array([source], pa.string()).take(pa.array(np.zeros(table.num_rows, np.int64)))
        tables.append(table.append_column("source", names))
        part.append(np.full(table.num_rows, number, np.int32))
        row.append(np.arange(table.num_rows, dtype=np.int64))
    joined = _with_large_strings(pa.concat_tables(tables))
    order = pc.sort_indices(joined, sort_keys=[(name, "ascending") for name in _ORDER])
    positions = order.to_numpy()
    return Corpus(
        table=joined.take(order).combine_chunks(),
        parts=tuple(path for _, path in parts),
        part=np.concatenate(part)[positions],
        row=np.concatenate(row)[positions],
    )


def _with_large_strings(table: Any) -> Any:
    """Return the table with large strings: an array of plain strings is limited to 2 GiB of text."""
    fields = [
        pa.field(field.name, pa.large_string() if field.type == pa.string() else field.type)
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))
