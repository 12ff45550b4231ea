"""Removal of duplicates: the preferred copy of a file is kept."""

import numpy as np
from numpy.typing import NDArray

from data_prep.corpus.decisions import Decisions
from data_prep.corpus.rows import Corpus

EXACT, NEAR = "exact_duplicate", "near_duplicate"


def preference(corpus: Corpus) -> NDArray[np.int64]:
    """Return the rank of every row, int64 [num_rows]: of copies, the one with the smallest rank is kept.

    More stars first, then the order of the ledger: source, repository, path, location.
    """
    order = np.argsort(-corpus.integers("stars"), kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank


def drop_exact(corpus: Corpus, decisions: Decisions, rank: NDArray[np.int64]) -> None:
    """Drop the rows whose text, as it would be stored, equals that of a preferred row."""
    kept = decisions.kept()
    digests = corpus.table.column("sha256").take(kept).combine_chunks().dictionary_encode()
    groups = digests.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    _drop_all_but_best(decisions, kept, groups, rank, EXACT)


def drop_near(
    decisions: Decisions, rows: NDArray[np.int64], labels: NDArray[np.int64], rank: NDArray[np.int64]
) -> None:
    """Drop all but the preferred row of each near-duplicate cluster: `labels[i]` is that of `rows[i]`.

    The value of a dropped row is the size of its cluster.
    """
    best, sizes = _drop_all_but_best(decisions, rows, labels, rank, NEAR)
    is_cluster = sizes > 1
    decisions.cluster[rows[is_cluster]] = best[is_cluster]
    dropped = rows[is_cluster & (best != rows)]
    decisions.value[dropped] = sizes[is_cluster & (best != rows)]


def _drop_all_but_best(
    decisions: Decisions,
    rows: NDArray[np.int64],
    groups: NDArray[np.int64],
    rank: NDArray[np.int64],
    rule: str,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Drop all but the best row of each group; return for each of `rows` its best row and its group's size."""
    by_group = np.lexsort((rank[rows], groups))
    is_first = np.ones(len(rows), bool)
    is_first[1:] = np.diff(groups[by_group]) != 0
    group_number = np.cumsum(is_first) - 1
    best = np.empty(len(rows), np.int64)
    best[by_group] = rows[by_group][is_first][group_number]
    sizes = np.empty(len(rows), np.int64)
    sizes[by_group] = np.bincount(group_number)[group_number] if len(rows) else 0
    is_copy = best != rows
    decisions.drop_duplicates(rows[is_copy], best[is_copy], rule)
    return best, sizes
