"""The last step of prep: indexes, tokenizer, ledger and, finally, the manifest."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.storage import fingerprint, sha256_bytes, sha256_file, write_bytes
from data_prep.config import PrepConfig
from data_prep.documents import SPLITS
from data_prep.finished.ledger import read_ledger, write_ledger
from data_prep.finished.manifest import (
    LEDGER_NAME,
    SIGNATURE_NAME,
    TOKENIZER_NAME,
    IndexedBlock,
    Manifest,
    Shard,
    ShardIndex,
    Source,
    read_manifest,
    write_manifest,
)
from data_prep.finished.summary import summarise
from data_prep.steps.shard_plan import ShardPlan
from data_prep.steps.shards import WrittenShard
from data_prep.tokenizer import CodeTokenizer

_NUM_REMOVALS = 5


@dataclass(frozen=True)
class Outcome:
    """The results of the previous steps: the plan and its written shards, the ledger's table, the tokenizer and every
    source's mixture weight."""

    plan: ShardPlan
    written: Sequence[WrittenShard]
    ledger: Any
    tokenizer_path: Path
    weights: Mapping[str, float]


def finished_summary(config: PrepConfig, seed: int, folder: Path, signature: str) -> dict[str, Any] | None:
    """Return the summary of a folder that was finished with this config and these inputs, else None.

    Removes the work folder of a finished folder if a killed call has left it.
    """
    manifest = read_manifest(folder)
    ledger_path = folder / manifest.ledger
    same_config = (manifest.config_sha256, manifest.seed) == (config_sha256(config), seed)
    if not same_config or not ledger_path.is_file() or sha256_file(ledger_path) != manifest.ledger_sha256:
        return None
    signature_path = folder / SIGNATURE_NAME
    if not signature_path.is_file() or signature_path.read_text() != signature:
        return None
    remove_folder(folder / "work")
    return summarise(read_ledger(ledger_path), manifest)


def finish(folder: Path, config_digest: str, seed: int, outcome: Outcome) -> dict[str, Any]:
    """Write everything except the tars, and return the summary."""
    write_bytes(folder / TOKENIZER_NAME, outcome.tokenizer_path.read_bytes())
    tokenizer = CodeTokenizer.load(folder / TOKENIZER_NAME)
    splits: dict[str, list[Shard]] = {split: [] for split in SPLITS}
    for planned, shard in zip(outcome.plan.shards, outcome.written, strict=True):
        index = shard.index.blocks
        entry = write_index(folder, planned.name, planned.source, index, shard.tar_sha256)
        splits[planned.split].append(entry)
    write_ledger(folder / LEDGER_NAME, outcome.ledger)
    manifest = Manifest(
        config_sha256=config_digest,
        seed=seed,
        tokenizer_sha256=tokenizer.fingerprint,
        vocab_size=tokenizer.vocab_size,
        ledger_sha256=sha256_file(folder / LEDGER_NAME),
        sources=count_sources(splits, outcome.weights),
        splits={split: tuple(entries) for split, entries in splits.items()},
    )
    remove_unnamed(folder, manifest)
    write_manifest(folder, manifest)
    return summarise(read_ledger(folder / LEDGER_NAME), manifest)


def write_index(
    folder: Path, name: str, source: str, blocks: tuple[IndexedBlock, ...], tar_sha256: str
) -> Shard:
    """Write the index of the tar `name`, which must be in its final place; return the manifest's entry."""
    data = (ShardIndex(blocks=blocks).model_dump_json(indent=1) + "\n").encode()
    write_bytes(folder / "shards" / f"{name}.index.json", data)
    return Shard(
        name=name,
        source=source,
        num_blocks=len(blocks),
        num_docs=sum(block.num_docs for block in blocks),
        num_tokens=sum(block.num_tokens for block in blocks),
        num_text_bytes=sum(block.num_text_bytes for block in blocks),
        tar_bytes=(folder / "shards" / f"{name}.tar").stat().st_size,
        tar_sha256=tar_sha256,
        index_sha256=sha256_bytes(data),
    )


def count_sources(splits: Mapping[str, Sequence[Shard]], weights: Mapping[str, float]) -> dict[str, Source]:
    """Return the counts of each source over all splits."""
    shards = [shard for entries in splits.values() for shard in entries]
    return {
        name: Source(
            weight=weight,
            num_docs=sum(shard.num_docs for shard in shards if shard.source == name),
            num_tokens=sum(shard.num_tokens for shard in shards if shard.source == name),
            num_text_bytes=sum(shard.num_text_bytes for shard in shards if shard.source == name),
        )
        for name, weight in sorted(weights.items())
    }


def config_sha256(config: PrepConfig) -> str:
    """Return the fingerprint of the stage's configuration."""
    return fingerprint(config.model_dump(mode="json"))


def remove_folder(folder: Path) -> None:
    """Remove `folder`, even while the last task of a killed call is writing its output there."""
    old = folder.with_name(f".{folder.name}.old")
    for _ in range(_NUM_REMOVALS):
        shutil.rmtree(old, ignore_errors=True)
        try:
            folder.rename(old)
        except FileNotFoundError:
            break
        except OSError:  # `old` is not empty yet
            continue
    shutil.rmtree(old, ignore_errors=True)


def remove_unnamed(folder: Path, manifest: Manifest) -> None:
    """Remove tars, indexes and ledgers that the manifest does not name, and temporary files of a killed call."""
    names = {shard.name for shards in manifest.splits.values() for shard in shards}
    for path in (folder / "shards").iterdir():
        if path.name.split(".")[0] not in names:
            path.unlink(missing_ok=True)
    for path in folder.glob("ledger*.parquet"):
        if path.name != manifest.ledger:
            path.unlink(missing_ok=True)
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)
