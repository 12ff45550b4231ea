"""The order of the documents in the shards."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data_prep.config import OrderConfig
from data_prep.corpus import Corpus
from data_prep.ordering import keyed_hash
from data_prep.repository_order.order import RepositoryFile, dependency_order
from data_prep.text_store import Part


def order_documents(
    corpus: Corpus, rows: NDArray[np.int64], config: OrderConfig, seed: int
) -> NDArray[np.int64]:
    """`rows`, which stand in the corpus's order, source by source and repository by repository.

    Repositories of a source come in keyed-hash order; their files in the order in which they need each other,
    where that can be told, else by path.
    """
    if not len(rows):
        return rows
    sources, repositories = corpus.strings("source"), corpus.strings("repository")
    runs = list(_runs(rows, sources, repositories))
    runs.sort(key=lambda run: (sources[run[0]], _hash(seed, repositories[run[0]]), repositories[run[0]]))
    if config.within_repository == "path":
        return np.concatenate(runs)
    by_dependency = _DependencyOrder(corpus)
    return np.concatenate([by_dependency.of(run) for run in runs])


def _hash(seed: int, repository: str) -> str:
    return keyed_hash(seed, "order", repository)


def _runs(
    rows: NDArray[np.int64], sources: NDArray[np.object_], repositories: NDArray[np.object_]
) -> Iterator[NDArray[np.int64]]:
    """The rows of each repository."""
    start = 0
    for end in range(1, len(rows) + 1):
        is_end = end == len(rows)
        if is_end or (
            repositories[rows[end]] != repositories[rows[start]] or sources[rows[end]] != sources[rows[start]]
        ):
            yield rows[start:end]
            start = end


class _DependencyOrder:
    """Reads imports from the parts, one open at a time: a repository mostly lies in one."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._paths = corpus.strings("path")
        self._languages = corpus.strings("language")
        self._number = -1
        self._imports: Any = None

    def of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        if len(rows) == 1:
            return rows
        imports = self._read_imports(rows)
        files = [
            RepositoryFile(self._paths[row], self._languages[row], imports[row]) for row in rows.tolist()
        ]
        return rows[np.array(dependency_order(files), np.int64)]

    def _read_imports(self, rows: NDArray[np.int64]) -> dict[int, tuple[str, ...]]:
        found: dict[int, tuple[str, ...]] = {}
        for number in np.unique(self._corpus.part[rows]).tolist():
            if number != self._number:
                self._imports = Part(self._corpus.parts[number]).imports()
                self._number = number
            here = rows[self._corpus.part[rows] == number]
            lists = self._imports.take(pa.array(self._corpus.row[here])).to_pylist()
            found.update((row, tuple(names or ())) for row, names in zip(here.tolist(), lists, strict=True))
        return found
