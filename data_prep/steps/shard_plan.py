"""The plan of which documents go into which tar, and of its division into blocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cluster.storage import atomic_file, canonical_json, sha256_bytes
from data_prep.config import PrepConfig
from data_prep.corpus.rows import Corpus
from data_prep.documents import SPLITS, DocumentMeta
from data_prep.steps.document_order import order_documents

# Tars are planned before anything is tokenised; code has three to four bytes per token.
EXPECTED_BYTES_PER_TOKEN = 3.5

_META_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("repository", pa.string()),
        ("path", pa.string()),
        ("language", pa.string()),
        ("licence", pa.string()),
        ("sha256", pa.string()),
        ("num_bytes", pa.int64()),
        ("location", pa.string()),
        ("stars", pa.int64()),
    ]
)


@dataclass(frozen=True)
class PlannedShard:
    """One tar: documents `start` to `end` of the plan. `name` is its file name without suffix."""

    name: str
    split: str
    source: str
    start: int
    end: int
    num_text_bytes: int


@dataclass(frozen=True)
class PlannedDocument:
    """A document and the place of its text: row `row` of `part`."""

    meta: DocumentMeta
    part: Path
    row: int


@dataclass(frozen=True)
class ShardPlan:
    """A plan: `rows[i]` is the corpus's row of document i; the shards cover all documents, in order."""

    rows: NDArray[np.int64]
    shards: tuple[PlannedShard, ...]


def plan_corpus(
    corpus: Corpus, splits: Mapping[str, NDArray[np.int64]], config: PrepConfig, seed: int
) -> ShardPlan:
    """Plan tars of all kept documents, split by split and source by source; no tar has documents of two sources."""
    sources = corpus.strings("source")
    sizes_bytes = corpus.integers("num_text_bytes")
    rows: list[NDArray[np.int64]] = []
    shards: list[PlannedShard] = []
    for split in SPLITS:
        ordered = order_documents(corpus, splits[split], config.order, seed)
        first_shard = len(shards)
        for run in np.split(ordered, np.flatnonzero(sources[ordered[1:]] != sources[ordered[:-1]]) + 1):
            bounds = even_cuts(sizes_bytes[run], config.shard_tokens * EXPECTED_BYTES_PER_TOKEN)
            offset = sum(map(len, rows))
            for start, end in zip(bounds[:-1], bounds[1:], strict=True):
                name = f"{split}-{len(shards) - first_shard:05d}"
                num_bytes = int(sizes_bytes[run[start:end]].sum())
                place = (offset + start, offset + end, num_bytes)
                shards.append(PlannedShard(name, split, sources[run[0]], *place))
            rows.append(run)
    return ShardPlan(np.concatenate(rows), tuple(shards))


def even_cuts(sizes: NDArray[np.int64], target: float) -> list[int]:
    """Return boundaries [0, ..., len(sizes)] of consecutive runs, each of about `target` and none empty.

    The runs have about equal size, so that there is no small rest at the end.
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


class PlanWriter:
    """Writes the plan to a file, from which the tasks read their documents."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        renamed = corpus.table.drop_columns(["num_bytes"]).rename_columns({"num_text_bytes": "num_bytes"})
        self._metas = renamed.select(_META_SCHEMA.names)

    def digests(self, plan: ShardPlan) -> list[str]:
        """Return a digest per shard of what its bytes depend on: the documents, in order, and their metadata."""
        return [
            sha256_bytes(canonical_json(self._metas.take(plan.rows[s.start : s.end]).to_pylist()).encode())
            for s in plan.shards
        ]

    def write(self, path: Path, plan: ShardPlan) -> None:
        """Write one record batch per shard."""
        names = pa.array([str(part) for part in self._corpus.parts])
        with atomic_file(path) as sink, pa.ipc.new_file(sink, _plan_schema()) as writer:
            for shard in plan.shards:
                rows = plan.rows[shard.start : shard.end]
                metas = self._metas.take(rows).combine_chunks().cast(_META_SCHEMA)
                where = [names.take(pa.array(self._corpus.part[rows])), pa.array(self._corpus.row[rows])]
                columns = [column.combine_chunks() for column in metas.columns]
                writer.write_batch(pa.record_batch([*columns, *where], schema=_plan_schema()))


def read_plan(path: Path, batch: int) -> list[PlannedDocument]:
    """Return the documents of shard number `batch` of the plan."""
    with pa.memory_map(str(path)) as source:
        rows: Sequence[dict[str, Any]] = pa.ipc.open_file(source).get_batch(batch).to_pylist()
    return [_document(row) for row in rows]


def _document(row: dict[str, Any]) -> PlannedDocument:
    part, number = Path(row.pop("part")), int(row.pop("row"))
    return PlannedDocument(DocumentMeta(**row), part, number)


def _plan_schema() -> Any:
    return _META_SCHEMA.append(pa.field("part", pa.string())).append(pa.field("row", pa.int64()))
