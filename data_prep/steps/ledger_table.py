"""Construction of the ledger's rows from the driver's decisions and the written shards."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data_prep.corpus.decisions import Decisions
from data_prep.corpus.rows import Corpus
from data_prep.finished.ledger import LEDGER_SCHEMA
from data_prep.steps.shard_plan import ShardPlan
from data_prep.steps.shards import WrittenShard


def ledger_table(
    corpus: Corpus,
    decisions: Decisions,
    licences: Sequence[str | None],
    plan: ShardPlan,
    written: Sequence[WrittenShard],
) -> Any:
    """Return one row per row of the corpus, in its order, with the columns of `LEDGER_SCHEMA` (large strings)."""
    split, block, num_tokens = _placement(len(corpus), plan, written)
    ids = corpus.strings("id")
    columns = {
        "licence": pa.array(licences, pa.large_string()),
        "decision": pa.array(
            np.where(decisions.rule == np.array(None), "kept", "dropped").tolist(), pa.large_string()
        ),
        "rule": pa.array(decisions.rule, pa.large_string()),
        "value": pa.array(decisions.value, pa.float64(), mask=np.isnan(decisions.value)),
        "detail": pa.array(decisions.detail, pa.large_string()),
        "duplicate_of": _names(corpus, decisions.duplicate_of),
        "cluster": pa.array(
            [ids[row] if row >= 0 else None for row in decisions.cluster.tolist()], pa.large_string()
        ),
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
    """Return for each row its split, its block's key and its number of tokens (-1: none)."""
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
    """Return "source:repository:path" of the rows, None for -1."""
    sources, repositories, paths = (corpus.strings(name) for name in ("source", "repository", "path"))
    return pa.array(
        [f"{sources[row]}:{repositories[row]}:{paths[row]}" if row >= 0 else None for row in rows.tolist()],
        pa.large_string(),
    )
