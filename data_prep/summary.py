"""What a finished prep folder holds, in numbers."""

from collections.abc import Sequence
from typing import Any

from data_prep.ledger import LedgerRow, dropped_by_rule
from data_prep.manifest import Manifest, Shard


def summarise(rows: Sequence[LedgerRow], manifest: Manifest) -> dict[str, Any]:
    """The stage's summary. `num_bytes_listed` counts files on disk; all other bytes are of kept text."""
    kept = [row for row in rows if row.fate == "kept"]
    num_bytes_kept = sum(row.num_text_bytes or 0 for row in kept)
    splits = {split: _count_shards(shards) for split, shards in manifest.splits.items()}
    return {
        "num_files_listed": len(rows),
        "num_bytes_listed": sum(row.num_bytes for row in rows),
        "num_files_kept": len(kept),
        "num_bytes_kept": num_bytes_kept,
        "dropped_by_rule": dropped_by_rule(rows),
        "repositories": _repositories(kept),
        "splits": splits,
        "languages": _languages(kept),
        "vocab_size": manifest.vocab_size,
        "bytes_per_token": num_bytes_kept / sum(counts["num_tokens"] for counts in splits.values()),
    }


def _count_shards(shards: Sequence[Shard]) -> dict[str, int]:
    return {
        "num_docs": sum(shard.num_docs for shard in shards),
        "num_tokens": sum(shard.num_tokens for shard in shards),
        "num_bytes": sum(shard.num_text_bytes for shard in shards),
        "num_shards": len(shards),
        "num_blocks": sum(shard.num_blocks for shard in shards),
    }


def _repositories(kept: Sequence[LedgerRow]) -> list[dict[str, Any]]:
    """By name."""
    found: dict[str, dict[str, Any]] = {}
    for row in kept:
        entry = found.setdefault(
            row.repository, {"name": row.repository, "split": row.split, "num_files": 0, "num_bytes": 0}
        )
        entry["num_files"] += 1
        entry["num_bytes"] += row.num_text_bytes
    return [found[name] for name in sorted(found)]


def _languages(kept: Sequence[LedgerRow]) -> dict[str, dict[str, int]]:
    """By name."""
    found: dict[str, dict[str, int]] = {}
    for row in sorted(kept, key=lambda row: row.language):
        entry = found.setdefault(row.language, {"num_files": 0, "num_bytes": 0})
        entry["num_files"] += 1
        entry["num_bytes"] += row.num_text_bytes or 0
    return found
