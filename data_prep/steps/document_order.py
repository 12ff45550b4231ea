"""The order of the documents in the shards."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data_prep.config import OrderConfig
from data_prep.corpus.rows import Corpus
from data_prep.corpus.text_store import Part
from data_prep.pseudo_random import keyed_hash
from data_prep.repository_order.order import RepositoryFile, dependency_order

_BATCH_ROWS = 200_000


def order_documents(
    corpus: Corpus, rows: NDArray[np.int64], config: OrderConfig, seed: int
) -> NDArray[np.int64]:
    """Return `rows`, given in the corpus's order, source by source and repository by repository.

    Repositories of a source are in keyed-hash order; their files are in dependency order, or by path where there are
    no dependencies.
    """
    if not len(rows):
        return rows
    sources, repositories = corpus.strings("source"), corpus.strings("repository")
    runs = list(_runs(rows, sources, repositories))
    runs.sort(
        key=lambda run: (
            sources[run[0]],
            keyed_hash(seed, "order", repositories[run[0]]),
            repositories[run[0]],
        )
    )
    if config.within_repository == "path":
        return np.concatenate(runs)
    return np.concatenate([run for batch in _batches(runs) for run in _by_dependency(corpus, batch)])


def _runs(
    rows: NDArray[np.int64], sources: NDArray[np.object_], repositories: NDArray[np.object_]
) -> Iterator[NDArray[np.int64]]:
    """Yield the rows of each repository."""
    start = 0
    for end in range(1, len(rows) + 1):
        is_end = end == len(rows)
        if is_end or (
            repositories[rows[end]] != repositories[rows[start]] or sources[rows[end]] != sources[rows[start]]
        ):
            yield rows[start:end]
            start = end


def _batches(runs: list[NDArray[np.int64]]) -> Iterator[list[NDArray[np.int64]]]:
    """Yield repositories with about _BATCH_ROWS files in all, whose imports are in memory at the same time."""
    batch: list[NDArray[np.int64]] = []
    num_rows = 0
    for run in runs:
        batch.append(run)
        num_rows += len(run)
        if num_rows >= _BATCH_ROWS:
            yield batch
            batch, num_rows = [], 0
    if batch:
        yield batch


def _by_dependency(corpus: Corpus, runs: list[NDArray[np.int64]]) -> Iterator[NDArray[np.int64]]:
    paths, languages = corpus.strings("path"), corpus.strings("language")
    imports = _read_imports(corpus, np.concatenate([run for run in runs if len(run) > 1] or [runs[0][:0]]))
    for run in runs:
        if len(run) == 1:
            yield run
            continue
        files = [RepositoryFile(paths[row], languages[row], imports[row]) for row in run.tolist()]
        yield run[np.array(dependency_order(files), np.int64)]


def _read_imports(corpus: Corpus, rows: NDArray[np.int64]) -> dict[int, tuple[str, ...]]:
    """Return imports by row; each part is opened once."""
    found: dict[int, tuple[str, ...]] = {}
    rows = rows[np.argsort(corpus.part[rows], kind="stable")]
    for here in np.split(rows, np.flatnonzero(np.diff(corpus.part[rows])) + 1):
        if len(here):
            imports = Part(corpus.parts[corpus.part[here[0]]]).imports()
            lists = imports.take(pa.array(corpus.row[here])).to_pylist()
            found.update((row, tuple(names or ())) for row, names in zip(here.tolist(), lists, strict=True))
    return found
