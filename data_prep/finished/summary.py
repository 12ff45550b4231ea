"""The summary of a finished prep folder, and its table of dropped files."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data_prep.finished.ledger import dropped_by_rule
from data_prep.finished.manifest import Manifest, Shard

_MB = 1_000_000
# Only the largest repositories are listed; a crawl has millions.
_MAX_REPOSITORIES = 200


def summarise(ledger: Any, manifest: Manifest) -> dict[str, Any]:
    """Return the stage's summary. `num_bytes_listed` counts bytes in the sources, all other bytes are of kept text."""
    kept = ledger.filter(pc.equal(ledger.column("decision"), "kept"))
    num_bytes_kept = _sum(kept.column("num_text_bytes"))
    splits = {split: _count_shards(shards) for split, shards in manifest.splits.items()}
    num_tokens = sum(counts["num_tokens"] for counts in splits.values())
    return {
        "num_files_listed": ledger.num_rows,
        "num_bytes_listed": _sum(ledger.column("num_bytes")),
        "num_files_kept": kept.num_rows,
        "num_bytes_kept": num_bytes_kept,
        "dropped_by_rule": dropped_by_rule(ledger),
        "bytes_dropped_by_rule": _bytes_by_rule(ledger),
        "num_repositories": len(pc.unique(kept.column("repository"))),
        "repositories": _repositories(kept),
        "splits": splits,
        "sources": {name: source.model_dump() for name, source in manifest.sources.items()},
        "languages": _by(kept, "language", ("num_text_bytes", "num_tokens")),
        "languages_listed": _by(ledger, "language", ("num_bytes",)),
        "licences": _by(kept, "licence", ("num_text_bytes", "num_tokens")),
        "licences_listed": _by(ledger, "licence", ("num_bytes",)),
        "document_bytes_histogram": _octaves(kept.column("num_text_bytes")),
        "cluster_sizes": _cluster_sizes(ledger),
        "flags": _count_words(kept.column("flags")),
        "redactions": _count_redactions(kept.column("redactions")),
        "vocab_size": manifest.vocab_size,
        "bytes_per_token": num_bytes_kept / num_tokens if num_tokens else 0.0,
    }


def funnel_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return a summary's table of files listed, dropped by each rule, and kept.

    Megabytes are those in the sources; for kept files, those of their text.
    """
    rows = [("listed", summary["num_files_listed"], summary["num_bytes_listed"])]
    sizes = summary["bytes_dropped_by_rule"]
    rows += [(f"- {rule}", count, sizes.get(rule, 0)) for rule, count in summary["dropped_by_rule"].items()]
    rows.append(("kept", summary["num_files_kept"], summary["num_bytes_kept"]))
    width = max(len(name) for name, _, _ in rows)
    header = f"{'':{width}}  {'files':>12}  {'MB':>12}  {'of all files':>12}"
    total = max(1, summary["num_files_listed"])
    return [
        header,
        *(
            f"{name:{width}}  {count:>12,}  {size / _MB:>12,.1f}  {count / total:>12.1%}"
            for name, count, size in rows
        ),
    ]


def _sum(column: Any) -> int:
    return int(pc.sum(column).as_py() or 0)


def _count_shards(shards: Sequence[Shard]) -> dict[str, int]:
    return {
        "num_docs": sum(shard.num_docs for shard in shards),
        "num_tokens": sum(shard.num_tokens for shard in shards),
        "num_bytes": sum(shard.num_text_bytes for shard in shards),
        "num_shards": len(shards),
        "num_blocks": sum(shard.num_blocks for shard in shards),
    }


def _repositories(kept: Any) -> list[dict[str, Any]]:
    """Return the largest repositories, sorted by name."""
    grouped = pa.TableGroupBy(kept, ["repository", "split"]).aggregate(
        [("num_text_bytes", "sum"), ("num_text_bytes", "count")]
    )
    rows = [
        {
            "name": row["repository"],
            "split": row["split"],
            "num_files": row["num_text_bytes_count"],
            "num_bytes": row["num_text_bytes_sum"],
        }
        for row in grouped.to_pylist()
    ]
    rows.sort(key=lambda row: (-row["num_bytes"], row["name"], row["split"]))
    return sorted(rows[:_MAX_REPOSITORIES], key=lambda row: (row["name"], row["split"]))


def _by(table: Any, column: str, sums: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return, by value of the column ("unknown" for nulls), the number of files, and the sums as num_bytes and
    num_tokens."""
    named = table.set_column(
        table.schema.get_field_index(column), column, pc.fill_null(table.column(column), "unknown")
    )
    grouped = pa.TableGroupBy(named, [column]).aggregate(
        [([], "count_all"), *((name, "sum") for name in sums)]
    )
    found = {}
    for row in sorted(grouped.to_pylist(), key=lambda row: str(row[column])):
        entry = {"num_files": row["count_all"], "num_bytes": row[f"{sums[0]}_sum"] or 0}
        if len(sums) > 1:
            entry["num_tokens"] = row[f"{sums[1]}_sum"] or 0
        found[row[column]] = entry
    return found


def _bytes_by_rule(ledger: Any) -> dict[str, int]:
    dropped = ledger.filter(pc.equal(ledger.column("decision"), "dropped"))
    grouped = pa.TableGroupBy(dropped, ["rule"]).aggregate([("num_bytes", "sum")])
    return {row["rule"]: row["num_bytes_sum"] for row in sorted(grouped.to_pylist(), key=lambda r: r["rule"])}


def _octaves(sizes: Any) -> dict[str, int]:
    """Return the number of documents by size: key "4096" counts those of 4096 to 8191 bytes."""
    numbers = np.maximum(sizes.to_numpy(), 1)
    exponents, counts = np.unique(np.floor(np.log2(numbers)).astype(int), return_counts=True)
    return {str(1 << int(e)): int(count) for e, count in zip(exponents, counts, strict=True)}


def _cluster_sizes(ledger: Any) -> dict[str, int]:
    """Return the number of near-duplicate clusters by their size."""
    clusters = ledger.column("cluster").drop_null()
    sizes = [entry["counts"] for entry in pc.value_counts(clusters).to_pylist()]
    values, counts = np.unique(np.array(sizes, np.int64), return_counts=True)
    return {str(int(v)): int(c) for v, c in zip(values, counts, strict=True)}


def _count_words(column: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in column.drop_null().to_pylist():
        for word in text.split():
            found[word] = found.get(word, 0) + 1
    return dict(sorted(found.items()))


def _count_redactions(column: Any) -> dict[str, int]:
    """Return the number of redactions by kind, from texts such as "email:2 key:1"."""
    found: dict[str, int] = {}
    for text in column.drop_null().to_pylist():
        for word in text.split():
            kind, _, count = word.rpartition(":")
            found[kind] = found.get(kind, 0) + int(count)
    return dict(sorted(found.items()))
