"""The manifest of a prep folder, and the index of each tar."""

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from cluster.config import Config
from cluster.errors import UserError
from cluster.storage import fingerprint, write_json

MANIFEST_NAME = "manifest.json"
TOKENIZER_NAME = "tokenizer.json"
LEDGER_NAME = "ledger.parquet"
# Identifies the inputs of the folder. It depends on file times, so it is not part of the manifest, which is the same
# everywhere.
SIGNATURE_NAME = ".input-signature"
# To be increased when the same config and files would give other bytes than before.
FORMAT_VERSION: Literal[3] = 3

TOKENS_MEMBER = "tokens.npy"
DOCS_MEMBER = "docs.npy"
META_MEMBER = "meta.json"


class Member(Config):
    """A range of bytes of the tar."""

    offset: int
    num_bytes: int
    sha256: str


class IndexedBlock(Config):
    """One tar sample: its range of bytes in the tar, and its members by the suffix of their names after the key.

    `sha256` is that of the range; offsets of members count from the tar's beginning.
    """

    key: str
    offset: int
    num_bytes: int
    sha256: str
    num_tokens: int
    num_docs: int
    num_text_bytes: int
    members: dict[str, Member]


class ShardIndex(Config):
    """`NAME.index.json` beside `NAME.tar`."""

    blocks: tuple[IndexedBlock, ...]


class Shard(Config):
    """The manifest's entry of a tar; all its documents come from one source."""

    name: str
    source: str
    num_blocks: int
    num_docs: int
    num_tokens: int
    num_text_bytes: int
    tar_bytes: int
    tar_sha256: str
    index_sha256: str


class Source(Config):
    """The manifest's entry of a source; `weight` is the mixture weight of its tokens in training."""

    weight: float
    num_docs: int
    num_tokens: int
    num_text_bytes: int


class Manifest(Config):
    """`manifest.json`, written last: a folder that has it is complete.

    `revision` is 1 when prep has written the folder and increases each time documents are forgotten; `ledger` is the
    ledger's file name, a new one in each revision, so that replacing the manifest switches readers to the new state.
    """

    format_version: Literal[3] = FORMAT_VERSION
    revision: int = 1
    config_sha256: str
    seed: int
    tokenizer_sha256: str
    vocab_size: int
    ledger: str = LEDGER_NAME
    ledger_sha256: str
    sources: dict[str, Source]
    splits: dict[str, tuple[Shard, ...]]

    def num_tokens(self, split: str) -> int:
        """Return the number of tokens of a split, including end-of-document tokens."""
        return sum(shard.num_tokens for shard in self.splits[split])


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest with a checksum of itself."""
    content = manifest.model_dump(mode="json")
    write_json(folder / MANIFEST_NAME, {**content, "sha256": fingerprint(content)})


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest. UserError when it is missing or damaged, or of another format."""
    path = folder / MANIFEST_NAME
    if not path.is_file():
        raise no_manifest(str(folder))
    return parse_manifest(path.read_bytes(), str(path), f"remove {folder} and run prep again")


def no_manifest(location: str) -> UserError:
    """Return the error for a folder without a manifest."""
    return UserError(f"{location} has no {MANIFEST_NAME}: it is not a finished prep folder; run prep first")


def parse_manifest(data: bytes, path: str, advice: str) -> Manifest:
    """Parse and check the manifest `data`, read from `path`. UserError, with `advice`, when it is damaged."""
    try:
        content: Any = json.loads(data.decode("utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is damaged (not JSON): {advice}") from error
    expected = content.pop("sha256", None) if isinstance(content, dict) else None
    if fingerprint(content) != expected:
        raise UserError(f"{path} is damaged (its checksum differs): {advice}")
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"{path} has another format ({where}: {first['msg']}): {advice}") from error
