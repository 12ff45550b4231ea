"""Verification of every checksum of a finished prep folder."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from cluster.storage import sha256_bytes
from data_prep.finished.manifest import IndexedBlock, Member, Shard, ShardIndex
from data_prep.finished.prepared import open_prepared


@dataclass(frozen=True)
class Verified:
    """Counts of what was verified without an error."""

    num_shards: int
    num_blocks: int
    num_members: int
    num_bytes: int


def verify_prepared(folder: Path, on_bytes: Callable[[int], None] = lambda num_bytes: None) -> Verified:
    """Verify the manifest, the tokenizer, the ledger, every index and tar, and in the tars every block and member.

    `on_bytes` is called with the size of each tar that is done. UserError for the first file that is missing or
    damaged, which names the damaged block or member if possible.
    """
    corpus = open_prepared(folder)  # checks the manifest and the indexes
    _ = corpus.tokenizer
    corpus.ledger(columns=["id"])
    shards = [shard for shards in corpus.manifest.splits.values() for shard in shards]
    num_blocks = num_members = num_bytes = 0
    for shard in shards:
        index = ShardIndex.model_validate_json((folder / "shards" / f"{shard.name}.index.json").read_bytes())
        _verify_tar(folder, shard, index)
        num_blocks += len(index.blocks)
        num_members += sum(len(block.members) for block in index.blocks)
        num_bytes += shard.tar_bytes
        on_bytes(shard.tar_bytes)
    return Verified(len(shards), num_blocks, num_members, num_bytes)


def _verify_tar(folder: Path, shard: Shard, index: ShardIndex) -> None:
    tar = folder / "shards" / f"{shard.name}.tar"
    advice = f"remove {folder} and run prep again"
    if not tar.is_file() or tar.stat().st_size != shard.tar_bytes:
        raise UserError(f"{tar} is missing or cut short (expected {shard.tar_bytes} bytes): {advice}")
    data = np.memmap(tar, dtype=np.uint8, mode="r")
    for block in index.blocks:
        for name, member in block.members.items():
            if _digest(data, member) != member.sha256:
                raise UserError(f"{tar} is damaged in block {block.key} ({name}): {advice}")
        if _digest(data, block) != block.sha256:
            raise UserError(f"{tar} is damaged in block {block.key} (between its members): {advice}")
    if sha256_bytes(data.data) != shard.tar_sha256:
        raise UserError(f"{tar} is damaged (outside its blocks): {advice}")


def _digest(data: NDArray[np.uint8], range_: Member | IndexedBlock) -> str:
    return sha256_bytes(data[range_.offset : range_.offset + range_.num_bytes].data)
