"""The documents that are compared: their numbers, and access to the text of a number."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster.storage import atomic_file, fingerprint, sha256_bytes
from data_prep.corpus.text_store import Part
from data_prep.corpus.work import Work

# Opened parts are memory maps, and a process may have only so many open files.
_MAX_OPEN_PARTS = 256


@dataclass(frozen=True, slots=True)
class DedupPart:
    """The rows of a part that are compared, in ascending order; all of them have band keys."""

    path: Path
    rows: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All compared documents, numbered in the order of the parts and of their rows.

    Part p has the documents `offsets[p]` to `offsets[p + 1]`; the file `rows_path` has the row of each document.
    `key` changes when a part or the choice of rows does.
    """

    key: str
    part_paths: tuple[Path, ...]
    offsets: tuple[int, ...]
    rows_path: Path

    @property
    def num_documents(self) -> int:
        return self.offsets[-1]

    def rows(self, part: int) -> NDArray[np.int64]:
        """Return the rows of one part."""
        return np.array(_map_rows(self.rows_path)[self.offsets[part] : self.offsets[part + 1]])

    def texts(self, documents: NDArray[np.int64]) -> list[bytes]:
        """Return the texts of some documents."""
        rows = _map_rows(self.rows_path)[documents].tolist()
        parts = (np.searchsorted(self.offsets, documents, side="right") - 1).tolist()
        return [_open_part(self.part_paths[part]).text(row) for part, row in zip(parts, rows, strict=True)]


def build_catalogue(parts: Sequence[DedupPart], work: Work) -> Catalogue:
    """Number the documents of `parts` and write their rows to the work folder."""
    parts = [part for part in parts if len(part.rows)]
    key = fingerprint([[part.path.name, sha256_bytes(part.rows.tobytes())] for part in parts])
    rows_path = work.path("near-rows", key, "npy")
    with atomic_file(rows_path) as file:
        np.save(file, np.concatenate([np.empty(0, np.int64), *(part.rows for part in parts)]))
    offsets = np.cumsum([0, *(len(part.rows) for part in parts)])
    return Catalogue(key, tuple(part.path for part in parts), tuple(offsets.tolist()), rows_path)


@lru_cache(maxsize=_MAX_OPEN_PARTS)
def _open_part(path: Path) -> Part:
    return Part(path)


@lru_cache(maxsize=1)
def _map_rows(rows_path: Path) -> NDArray[np.int64]:
    rows: NDArray[np.int64] = np.load(rows_path, mmap_mode="r")
    return rows
