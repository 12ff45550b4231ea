"""The ledger's rows from what the driver decided and the shard tasks wrote."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data_prep.corpus import Corpus
from data_prep.fates import Fates
from data_prep.ledger import LEDGER_SCHEMA
from data_prep.shard_plan import ShardPlan
from data_prep.shards import WrittenShard


def ledger_table(
    corpus: Corpus,
    fates: Fates,
    licences: Sequence[str | None],
    plan: ShardPlan,
    written: Sequence[WrittenShard],
) -> Any:
    """One row per row of the corpus, in its order, with the columns of `LEDGER_SCHEMA` (large strings)."""
    split, block, num_tokens = _placement(len(corpus), plan, written)
    columns = {
        "licence": pa.array(licences, pa.large_string()),
        "fate": pa.array(
            np.where(fates.rule == np.array(None), "kept", "dropped").tolist(), pa.large_string()
        ),
        "rule": pa.array(fates.rule, pa.large_string()),
        "value": pa.array(fates.value, pa.float64(), mask=np.isnan(fates.value)),
        "detail": pa.array(fates.detail, pa.large_string()),
        "duplicate_of": _names(corpus, fates.duplicate_of),
        "cluster": _taken(corpus.strings("id"), fates.cluster),
        "split": pa.array(split, pa.large_string()),
        "block": pa.array(block, pa.large_string()),
        "num_tokens": pa.array(num_tokens, pa.int64(), mask=num_tokens < 0),
    }
    return pa.table(
        [columns[name] if name in columns else corpus.table.column(name) for name in LEDGER_SCHEMA.names],
        names=LEDGER_SCHEMA.names,
    )


def _placement(
    num_rows: int, plan: ShardPlan, written: Sequence[WrittenShard]
) -> tuple[NDArray[np.object_], NDArray[np.object_], NDArray[np.int64]]:
    """Per row its split, its block's key and its number of tokens (-1: none)."""
    split: NDArray[np.object_] = np.full(num_rows, None, object)
    block: NDArray[np.object_] = np.full(num_rows, None, object)
    num_tokens = np.full(num_rows, -1, np.int64)
    for planned, shard in zip(plan.shards, written, strict=True):
        rows = plan.rows[planned.start : planned.end]
        split[rows] = planned.split
        num_tokens[rows] = shard.document_tokens
        keys = [entry.key for entry in shard.index.blocks for _ in range(entry.num_docs)]
        block[rows] = keys
    return split, block, num_tokens


def _names(corpus: Corpus, rows: NDArray[np.int64]) -> Any:
    """ "source:repository:path" of the rows; -1 gives None."""
    sources, repositories, paths = (corpus.strings(name) for name in ("source", "repository", "path"))
    return pa.array(
        [f"{sources[row]}:{repositories[row]}:{paths[row]}" if row >= 0 else None for row in rows.tolist()],
        pa.large_string(),
    )


def _taken(values: NDArray[np.object_], rows: NDArray[np.int64]) -> Any:
    return pa.array([values[row] if row >= 0 else None for row in rows.tolist()], pa.large_string())
