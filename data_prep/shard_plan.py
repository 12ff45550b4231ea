"""Which documents go into which tar, and where a tar is cut into blocks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_prep.documents import DocumentMeta
from data_prep.text_store import TextRef

# Tars are planned before anything is tokenised; code has three to four bytes per token.
EXPECTED_BYTES_PER_TOKEN = 3.5


@dataclass(frozen=True)
class PlannedDocument:
    """A document and where its text lies."""

    meta: DocumentMeta
    text: TextRef


@dataclass(frozen=True)
class PlannedShard:
    """The documents of one tar, in order; `name` is its file name without suffix."""

    name: str
    split: str
    documents: tuple[PlannedDocument, ...]


def plan_shards(split: str, documents: Sequence[PlannedDocument], shard_tokens: int) -> list[PlannedShard]:
    """Cut a split's documents, kept in order, into tars of about `shard_tokens`."""
    sizes = np.array([document.meta.num_bytes for document in documents], dtype=np.int64)
    bounds = even_cuts(sizes, shard_tokens * EXPECTED_BYTES_PER_TOKEN)
    return [
        PlannedShard(f"{split}-{number:05d}", split, tuple(documents[start:end]))
        for number, (start, end) in enumerate(zip(bounds[:-1], bounds[1:], strict=True))
    ]


def even_cuts(sizes: NDArray[np.int64], target: float) -> list[int]:
    """Boundaries [0, ..., len(sizes)] of consecutive runs, each of about `target` and none empty.

    The runs are made equal, so that no small rest is left at the end.
    """
    ends = np.cumsum(sizes)
    total = int(ends[-1])
    num_runs = max(1, min(len(sizes), round(total / target)))
    wanted = np.arange(1, num_runs) * (total / num_runs)
    after = np.searchsorted(ends, wanted)
    # The boundary nearest to the wanted position: before or after the item that crosses it.
    before_is_nearer = wanted - (ends - sizes)[after] < ends[after] - wanted
    cuts = np.unique(after + np.where(before_is_nearer, 0, 1))
    return [0, *(int(cut) for cut in cuts if 0 < cut < len(sizes)), len(sizes)]
