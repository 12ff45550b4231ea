"""Read a finished prep folder. Needs no Ray."""

import io
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from cluster.errors import UserError
from cluster.storage import sha256_bytes, sha256_file
from data_prep.documents import DocumentMeta
from data_prep.manifest import (
    DOCS_MEMBER,
    META_MEMBER,
    TOKENIZER_NAME,
    TOKENS_MEMBER,
    Manifest,
    Member,
    Shard,
    ShardIndex,
    read_manifest,
)
from data_prep.tokenizer import CodeTokenizer, TokenArray


@dataclass(frozen=True)
class BlockEntry:
    """One block, as the index knows it; `shard` is the tar's name without suffix."""

    shard: str
    source: str
    key: str
    num_tokens: int
    num_docs: int
    num_text_bytes: int
    members: dict[str, Member]


@dataclass(frozen=True)
class Block:
    """Whole documents, one after the other; those of a repository stand together.

    `tokens` [num_tokens] is a read-only view of the mapped file, `doc_starts` [num_docs] the position of
    each document's first token.
    """

    tokens: TokenArray
    doc_starts: NDArray[np.int64]
    docs: list[DocumentMeta]

    def document_tokens(self, i: int) -> TokenArray:
        """Tokens of document `i`, the end-of-document token at the end included."""
        end = self.doc_starts[i + 1] if i + 1 < len(self.doc_starts) else len(self.tokens)
        return self.tokens[self.doc_starts[i] : end]


def open_prepared(folder: Path) -> "PreparedCorpus":
    """Open a finished prep folder; checks the manifest and every index.

    UserError when the folder is not finished or one of these files is missing or damaged.
    """
    return PreparedCorpus(folder)


class PreparedCorpus:
    """Blocks by split, in a fixed order; each block's checksums are verified when it is first read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest: Manifest = read_manifest(folder)
        self._shards = {shard.name: shard for shards in self.manifest.splits.values() for shard in shards}
        self._blocks = {
            split: [entry for shard in shards for entry in _read_index(folder, shard)]
            for split, shards in self.manifest.splits.items()
        }
        self._mapped: dict[str, NDArray[np.uint8]] = {}
        self._verified: set[str] = set()

    @cached_property
    def tokenizer(self) -> CodeTokenizer:
        """The tokenizer the shards were written with. UserError when its file is damaged."""
        return CodeTokenizer.load(self.folder / TOKENIZER_NAME, self.manifest.tokenizer_sha256)

    def ledger(self, columns: list[str] | None = None) -> Any:
        """What became of every file, as a pyarrow table of `ledger.LEDGER_SCHEMA`, or these columns of it.

        UserError when the ledger is missing or damaged.
        """
        from data_prep.ledger import read_ledger

        return read_ledger(self._ledger_path, columns)

    @cached_property
    def _ledger_path(self) -> Path:
        """Checked once: a large corpus has a large ledger."""
        path = self.folder / self.manifest.ledger
        if not path.is_file() or sha256_file(path) != self.manifest.ledger_sha256:
            raise UserError(f"ledger {path} is missing or damaged: remove {self.folder} and run prep again")
        return path

    def blocks(self, split: str) -> list[BlockEntry]:
        """The blocks of "train", "validation" or "test"; the order is that of the tars."""
        return list(self._blocks[split])

    def read_block(self, entry: BlockEntry) -> Block:
        """Map a block. UserError naming the tar and the block when a byte of it differs from the index."""
        members = {
            name: self._member_bytes(entry, name) for name in (TOKENS_MEMBER, DOCS_MEMBER, META_MEMBER)
        }
        self._verified.add(entry.key)
        meta: list[dict[str, Any]] = json.loads(members[META_MEMBER].tobytes())["documents"]
        return Block(
            tokens=_array_in(members[TOKENS_MEMBER]),
            doc_starts=_array_in(members[DOCS_MEMBER]),
            docs=[DocumentMeta(**document) for document in meta],
        )

    def _member_bytes(self, entry: BlockEntry, name: str) -> NDArray[np.uint8]:
        member = entry.members[name]
        data = self._map(entry.shard)[member.offset : member.offset + member.num_bytes]
        if entry.key not in self._verified and sha256_bytes(data.data) != member.sha256:
            raise UserError(
                f"{_tar_path(self.folder, entry.shard)} is damaged in block {entry.key} ({name}): "
                f"remove {self.folder} and run prep again"
            )
        return data

    def _map(self, shard: str) -> NDArray[np.uint8]:
        if shard not in self._mapped:
            path = _tar_path(self.folder, shard)
            expected_bytes = self._shards[shard].tar_bytes
            if not path.is_file() or path.stat().st_size != expected_bytes:
                if read_manifest(self.folder).revision != self.manifest.revision:
                    raise UserError(
                        f"{self.folder}: documents were forgotten since it was opened: start the reader again"
                    )
                raise UserError(
                    f"{path} is missing or cut short (expected {expected_bytes} bytes): "
                    f"remove {self.folder} and run prep again"
                )
            self._mapped[shard] = np.memmap(path, dtype=np.uint8, mode="r")
        return self._mapped[shard]


def _tar_path(folder: Path, shard: str) -> Path:
    return folder / "shards" / f"{shard}.tar"


def _read_index(folder: Path, shard: Shard) -> list[BlockEntry]:
    path = folder / "shards" / f"{shard.name}.index.json"
    try:
        data = path.read_bytes()
        if sha256_bytes(data) != shard.index_sha256:
            raise ValueError("its SHA-256 differs from the manifest's")
        index = ShardIndex.model_validate_json(data)
    except FileNotFoundError:
        raise UserError(f"index {path} is missing: remove {folder} and run prep again") from None
    except (ValueError, ValidationError) as error:
        raise UserError(f"index {path} is damaged ({error}): remove {folder} and run prep again") from error
    return [
        BlockEntry(
            shard=shard.name,
            source=shard.source,
            key=block.key,
            num_tokens=block.num_tokens,
            num_docs=block.num_docs,
            num_text_bytes=block.num_text_bytes,
            members=block.members,
        )
        for block in index.blocks
    ]


def _array_in(data: NDArray[np.uint8]) -> Any:
    """The array stored as .npy in `data`, as a view of it."""
    head = io.BytesIO(data[:1024].tobytes())
    np.lib.format.read_magic(head)
    shape, _, dtype = np.lib.format.read_array_header_1_0(head)
    return data[head.tell() :].view(dtype).reshape(shape)
