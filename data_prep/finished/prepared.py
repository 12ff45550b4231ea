"""Reading of a finished prep folder, local or remote. Needs no Ray."""

import errno
import io
import json
import os
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from cluster.errors import UserError, first_line
from cluster.storage import sha256_bytes, sha256_file
from data_prep.documents import DocumentMeta
from data_prep.finished.manifest import (
    DOCS_MEMBER,
    MANIFEST_NAME,
    META_MEMBER,
    TOKENIZER_NAME,
    TOKENS_MEMBER,
    Manifest,
    Member,
    Shard,
    ShardIndex,
    no_manifest,
    parse_manifest,
)
from data_prep.sources.local_retries import retry_local
from data_prep.sources.remote import filesystem, is_remote, local_path, retry_remote
from data_prep.tokenizer import CodeTokenizer, TokenArray

_MAX_CONNECTIONS = 16


class PreparedFiles(Protocol):
    """The files of one prepared folder; `advice` says what to do when one of them is missing or damaged."""

    location: str
    advice: str
    num_readers: int
    """The number of threads that can usefully read at once."""
    num_tries: int
    """How often a range is read before a wrong checksum is an error."""

    def read(self, name: str) -> bytes:
        """Read a small file completely. FileNotFoundError when there is none."""
        ...

    def read_range(self, name: str, offset: int, num_bytes: int, file_bytes: int) -> NDArray[np.uint8]:
        """Read `num_bytes` at `offset`. FileNotFoundError when the file is missing or has not `file_bytes` bytes."""
        ...

    def mark(self, name: str) -> Hashable:
        """Return a value that changes with the file, if that could change what `read_range` has returned."""
        ...


class LocalFiles:
    """A folder on a local or mounted file system; ranges are mapped, not copied."""

    num_readers = 2
    num_tries = 1

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.location = str(folder)
        self.advice = f"remove {folder} and run prep again"

    def read(self, name: str) -> bytes:
        try:
            return retry_local(lambda: (self.folder / name).read_bytes())
        except NotADirectoryError as error:
            raise FileNotFoundError(*error.args) from error

    def read_range(self, name: str, offset: int, num_bytes: int, file_bytes: int) -> NDArray[np.uint8]:
        path = self.folder / name
        # Reading a mapping beyond the file's end would kill the process.
        if not path.is_file() or retry_local(path.stat).st_size != file_bytes:
            raise FileNotFoundError(errno.ENOENT, "missing or cut short", str(path))
        mapped = retry_local(lambda: np.memmap(path, np.uint8, "r", offset, (num_bytes,)))
        return mapped.view(np.ndarray)  # slicing a memmap is slow

    def mark(self, name: str) -> Hashable:
        try:
            status = retry_local(lambda: os.stat(f"{self.location}/{name}"))
        except OSError as error:
            return error.errno
        return status.st_ino, status.st_size, status.st_mtime_ns


class RemoteFiles:
    """A folder at a URL; every read is one request, which is retried after transient errors."""

    num_readers = _MAX_CONNECTIONS
    num_tries = 2

    def __init__(self, url: str) -> None:
        self.location = url.rstrip("/")
        self.advice = f"copy the finished prep folder to {self.location} again"

    def read(self, name: str) -> bytes:
        return self._fetch(name, None, None)

    def read_range(self, name: str, offset: int, num_bytes: int, file_bytes: int) -> NDArray[np.uint8]:
        data = self._fetch(name, offset, offset + num_bytes)
        if len(data) > num_bytes:
            raise UserError(
                f"{self.location}/{name}: its server sends complete files only, not ranges: "
                "use another server, or a local copy"
            )
        if len(data) < num_bytes:
            raise FileNotFoundError(errno.ENOENT, "missing or cut short", f"{self.location}/{name}")
        return np.frombuffer(data, np.uint8)

    def mark(self, name: str) -> Hashable:
        return None  # what was read is a copy that does not change

    def _fetch(self, name: str, start: int | None, end: int | None) -> bytes:
        url = f"{self.location}/{name}"
        system, path = filesystem(url)
        try:
            return retry_remote(url, lambda: cast(bytes, system.cat_file(path, start=start, end=end)))
        except (FileNotFoundError, UserError):
            raise
        except Exception as error:
            raise UserError(
                f"{url} cannot be read ({type(error).__name__}: {first_line(error)}): "
                "check the address and your permissions"
            ) from error


def files_at(location: str | Path) -> PreparedFiles:
    """Return the files of a prepared folder, given as a path or a URL."""
    text = os.fspath(location)
    if is_remote(text):
        return RemoteFiles(text)
    return LocalFiles(location if isinstance(location, Path) else Path(local_path(text)))


@dataclass(frozen=True, slots=True)
class BlockEntry:
    """The index's entry of a block: bytes [offset, offset + num_bytes) of the tar whose name without suffix is
    `shard`."""

    shard: str
    source: str
    key: str
    offset: int
    num_bytes: int
    num_tokens: int
    num_docs: int
    num_text_bytes: int
    members: dict[str, Member]


@dataclass(frozen=True)
class Block:
    """Complete documents, one after the other; those of a repository are consecutive.

    `tokens` [num_tokens] is a read-only view of the mapped file or of the fetched bytes, `doc_starts` [num_docs] the
    position of each document's first token. `meta` is JSON that is parsed at its first use.
    """

    tokens: TokenArray
    doc_starts: NDArray[np.int64]
    meta: NDArray[np.uint8]

    @cached_property
    def docs(self) -> list[DocumentMeta]:
        """The metadata of each document."""
        return [DocumentMeta(**document) for document in self._documents]

    @cached_property
    def group_starts(self) -> NDArray[np.int64]:
        """The positions in `tokens` at which another repository begins; the first is 0."""
        keys = [(document["source"], document["repository"]) for document in self._documents]
        first = [index for index, key in enumerate(keys) if index == 0 or key != keys[index - 1]]
        return self.doc_starts[first]

    def document_tokens(self, i: int) -> TokenArray:
        """Return the tokens of document `i`, including the end-of-document token."""
        end = self.doc_starts[i + 1] if i + 1 < len(self.doc_starts) else len(self.tokens)
        return self.tokens[self.doc_starts[i] : end]

    @property
    def _documents(self) -> list[dict[str, Any]]:
        documents: list[dict[str, Any]] = json.loads(self.meta.tobytes())["documents"]
        return documents


def open_prepared(location: Path | str) -> "PreparedCorpus":
    """Open a finished prep folder, given as a path or a URL for fsspec, and check the manifest and every index.

    UserError when the folder is not finished or one of these files is missing or damaged.
    """
    return PreparedCorpus(location)


class PreparedCorpus:
    """Blocks by split, in a fixed order; a block's checksums are verified whenever it is read.

    Several threads may read. Blocks are not cached. One process may open a corpus and send it to others, pickled, which
    then read no index.
    """

    def __init__(self, location: Path | str) -> None:
        self._files: PreparedFiles = files_at(location)
        self.location = self._files.location
        """The folder's path, or its URL without a slash at the end."""
        manifest = _read_manifest_bytes(self._files)
        self.manifest_sha256 = sha256_bytes(manifest)
        """SHA-256 of the manifest's file, which has the checksums of all other files in the folder."""
        self.manifest: Manifest = _parse_manifest(manifest, self._files)
        self._shards = {shard.name: shard for shards in self.manifest.splits.values() for shard in shards}
        # A server is asked for several indexes at once.
        with ThreadPoolExecutor(self._files.num_readers) as pool:
            read = pool.map(lambda shard: _read_index(self._files, shard), self._shards.values())
            indexes = dict(zip(self._shards, read, strict=True))
        self._blocks = {
            split: [entry for shard in shards for entry in indexes[shard.name]]
            for split, shards in self.manifest.splits.items()
        }

    @property
    def folder(self) -> Path:
        """The folder on this machine. UserError when it is behind a URL."""
        if not isinstance(self._files, LocalFiles):
            raise UserError(f"{self.location} is not on this machine: copy the prep folder here for this")
        return self._files.folder

    @property
    def num_readers(self) -> int:
        """The number of threads that can usefully read blocks at once."""
        return self._files.num_readers

    @cached_property
    def tokenizer(self) -> CodeTokenizer:
        """The tokenizer of the shards. UserError when its file is missing or damaged."""
        path = f"{self.location}/{TOKENIZER_NAME}"
        try:
            data = self._files.read(TOKENIZER_NAME)
        except FileNotFoundError:
            raise UserError(f"tokenizer {path} is missing: {self._files.advice}") from None
        return CodeTokenizer.of_bytes(data, path, self.manifest.tokenizer_sha256)

    def ledger(self, columns: list[str] | None = None) -> Any:
        """Return the ledger as a pyarrow table of `ledger.LEDGER_SCHEMA`, or these columns of it.

        UserError when the ledger is missing or damaged.
        """
        from data_prep.finished.ledger import read_ledger

        return read_ledger(self._ledger_path, columns)

    @cached_property
    def _ledger_path(self) -> Path:
        """The path of the ledger, whose checksum is verified only once, because it may be large."""
        path = self.folder / self.manifest.ledger
        if not path.is_file() or sha256_file(path) != self.manifest.ledger_sha256:
            raise UserError(f"ledger {path} is missing or damaged: remove {self.folder} and run prep again")
        return path

    def blocks(self, split: str) -> list[BlockEntry]:
        """Return the blocks of "train", "validation" or "test", in the order of the tars."""
        return list(self._blocks[split])

    def read_block(self, entry: BlockEntry) -> Block:
        """Map or fetch a block. UserError, which names the tar and the block, when a checksum differs."""
        for _ in range(self._files.num_tries):
            data = self._range(entry)
            members = {
                name: data[member.offset - entry.offset :][: member.num_bytes]
                for name, member in entry.members.items()
            }
            damaged = [
                name for name in members if sha256_bytes(members[name].data) != entry.members[name].sha256
            ]
            if not damaged:
                return Block(
                    tokens=_array_in(members[TOKENS_MEMBER]),
                    doc_starts=np.asarray(_array_in(members[DOCS_MEMBER]), np.int64),
                    meta=members[META_MEMBER],
                )
        raise UserError(
            f"{self.location}/{_tar_name(entry.shard)} is damaged in block {entry.key} ({damaged[0]}): "
            f"{self._files.advice}"
        )

    def mark(self, entry: BlockEntry) -> Hashable:
        """Return a value that changes with the block's tar, if that could change a block that was read before."""
        return self._files.mark(_tar_name(entry.shard))

    def _range(self, entry: BlockEntry) -> NDArray[np.uint8]:
        expected_bytes = self._shards[entry.shard].tar_bytes
        name = _tar_name(entry.shard)
        try:
            return self._files.read_range(name, entry.offset, entry.num_bytes, expected_bytes)
        except FileNotFoundError:
            if (
                _parse_manifest(_read_manifest_bytes(self._files), self._files).revision
                != self.manifest.revision
            ):
                raise UserError(
                    f"{self.location}: documents were forgotten after it was opened: start the reader again"
                ) from None
            raise UserError(
                f"{self.location}/{name} is missing or cut short (expected {expected_bytes} bytes) "
                f"in block {entry.key}: {self._files.advice}"
            ) from None


def _tar_name(shard: str) -> str:
    return f"shards/{shard}.tar"


def _read_manifest_bytes(files: PreparedFiles) -> bytes:
    try:
        return files.read(MANIFEST_NAME)
    except FileNotFoundError:
        raise no_manifest(files.location) from None


def _parse_manifest(data: bytes, files: PreparedFiles) -> Manifest:
    return parse_manifest(data, f"{files.location}/{MANIFEST_NAME}", files.advice)


def _read_index(files: PreparedFiles, shard: Shard) -> list[BlockEntry]:
    name = f"shards/{shard.name}.index.json"
    path = f"{files.location}/{name}"
    try:
        data = files.read(name)
        if sha256_bytes(data) != shard.index_sha256:
            raise ValueError("its SHA-256 differs from the manifest's")
        index = ShardIndex.model_validate_json(data)
    except FileNotFoundError:
        raise UserError(f"index {path} is missing: {files.advice}") from None
    except (ValueError, ValidationError) as error:
        raise UserError(f"index {path} is damaged ({error}): {files.advice}") from error
    return [
        BlockEntry(
            shard=shard.name,
            source=shard.source,
            key=block.key,
            offset=block.offset,
            num_bytes=block.num_bytes,
            num_tokens=block.num_tokens,
            num_docs=block.num_docs,
            num_text_bytes=block.num_text_bytes,
            members=block.members,
        )
        for block in index.blocks
    ]


def _array_in(data: NDArray[np.uint8]) -> Any:
    """Return the array stored as .npy in `data`, as a view of it."""
    head = io.BytesIO(data[:1024].tobytes())
    np.lib.format.read_magic(head)
    shape, _, dtype = np.lib.format.read_array_header_1_0(head)
    return data[head.tell() :].view(dtype).reshape(shape)
