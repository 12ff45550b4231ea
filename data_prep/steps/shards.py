"""Writing of one tar of blocks."""

import hashlib
import io
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from cluster.config import Config
from cluster.file_tasks import FileTask
from cluster.storage import atomic_file, canonical_json, sha256_bytes, write_bytes
from data_prep.corpus.text_store import read_texts
from data_prep.documents import DocumentMeta
from data_prep.finished.manifest import (
    DOCS_MEMBER,
    META_MEMBER,
    TOKENS_MEMBER,
    IndexedBlock,
    Member,
    ShardIndex,
)
from data_prep.steps.shard_plan import PlannedDocument, even_cuts, read_plan
from data_prep.tokenizer import CodeTokenizer, TokenArray

# Texts tokenised per call: bounds memory, and is enough for the tokenizer to be efficient.
_BATCH_DOCUMENTS = 256
_BATCH_TEXT_BYTES = 8 << 20


class WrittenShard(Config):
    """The record that a shard task writes for the driver once its tar is in place."""

    index: ShardIndex
    document_tokens: tuple[int, ...]
    tar_bytes: int
    tar_sha256: str


@dataclass(frozen=True)
class Sample:
    """A block's key, its documents' tokens and their metadata."""

    key: str
    tokens: Sequence[TokenArray]
    metas: Sequence[DocumentMeta]


def write_shard_task(
    name: str, plan_path: Path, batch: int, tokenizer_path: Path, block_tokens: int, tar: Path, output: Path
) -> None:
    """Task: tokenise the documents of the plan's batch, write them to `tar`, then its `WrittenShard` to `output`."""
    documents = read_plan(plan_path, batch)
    tokenizer = CodeTokenizer.load(tokenizer_path)
    arrays = list(tokenize_documents(documents, tokenizer))
    sizes = np.array([len(tokens) for tokens in arrays], dtype=np.int64)
    bounds = even_cuts(sizes, block_tokens)
    metas = [document.meta for document in documents]
    samples = (
        Sample(f"{name}-{number:05d}", arrays[start:end], metas[start:end])
        for number, (start, end) in enumerate(zip(bounds[:-1], bounds[1:], strict=True))
    )
    blocks, tar_sha256 = write_tar(tar, samples)
    written = WrittenShard(
        index=ShardIndex(blocks=blocks),
        document_tokens=tuple(sizes.tolist()),
        tar_bytes=tar.stat().st_size,
        tar_sha256=tar_sha256,
    )
    write_bytes(output, written.model_dump_json().encode())


def remove_stale_records(work: Path, shards: Path, tasks: Sequence[FileTask]) -> None:
    """Remove the records of shard tasks whose tar is missing or has another size, or will be replaced.

    A record of another plan describes a tar of the same name that the tasks will replace.
    """
    wanted = {task.output: task.name for task in tasks}
    for record in work.glob("shard-*.json"):
        tar = shards / f"{wanted.get(record, '')}.tar"
        if record not in wanted or not _is_valid_record(tar, record):
            record.unlink(missing_ok=True)


def _is_valid_record(tar: Path, record: Path) -> bool:
    try:
        written = WrittenShard.model_validate_json(record.read_bytes())
    except ValidationError:
        return False
    return tar.is_file() and tar.stat().st_size == written.tar_bytes


def tokenize_documents(
    documents: Sequence[PlannedDocument], tokenizer: CodeTokenizer
) -> Iterator[TokenArray]:
    """Yield the tokens of each document, with `<eod>` at the end."""
    end = np.array([tokenizer.eod_id], dtype=tokenizer.dtype)
    batch: list[bytes] = []
    num_bytes = 0
    for text in read_texts((document.part, document.row) for document in documents):
        batch.append(text)
        num_bytes += len(text)
        if len(batch) == _BATCH_DOCUMENTS or num_bytes >= _BATCH_TEXT_BYTES:
            yield from (np.concatenate([ids, end]) for ids in tokenizer.encode_bytes_batch(batch))
            batch, num_bytes = [], 0
    if batch:
        yield from (np.concatenate([ids, end]) for ids in tokenizer.encode_bytes_batch(batch))


def write_tar(path: Path, samples: Iterable[Sample]) -> tuple[tuple[IndexedBlock, ...], str]:
    """Write the blocks to a tar; return their places in it, and its SHA-256."""
    blocks = []
    with atomic_file(path) as file:
        hashing = _HashingFile(file)
        with tarfile.open(fileobj=hashing, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for sample in samples:
                blocks.append(_add_block(tar, sample, hashing))
    return tuple(blocks), hashing.total.hexdigest()


class _HashingFile(io.RawIOBase):
    """Writes to a file, with one digest of all bytes and one of the bytes since `start_range`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.total = hashlib.sha256()
        self.range = hashlib.sha256()

    def start_range(self) -> None:
        self.range = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.total.update(data)
        self.range.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()


def _add_block(tar: tarfile.TarFile, sample: Sample, hashing: _HashingFile) -> IndexedBlock:
    """Append one sample; return its place and those of its members."""
    ends = np.cumsum([len(tokens) for tokens in sample.tokens], dtype=np.int64)
    starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])
    contents = {
        TOKENS_MEMBER: _npy(np.concatenate(sample.tokens)),
        DOCS_MEMBER: _npy(starts),
        META_MEMBER: canonical_json({"documents": [vars(meta) for meta in sample.metas]}).encode(),
    }
    hashing.start_range()
    offset = tar.offset
    members = {name: _add_member(tar, f"{sample.key}.{name}", data) for name, data in contents.items()}
    return IndexedBlock(
        key=sample.key,
        offset=offset,
        num_bytes=tar.offset - offset,
        sha256=hashing.range.hexdigest(),
        num_tokens=int(ends[-1]),
        num_docs=len(sample.metas),
        num_text_bytes=sum(meta.num_bytes for meta in sample.metas),
        members=members,
    )


def _add_member(tar: tarfile.TarFile, name: str, data: bytes) -> Member:
    # A new TarInfo has no time, owner or group, so the tar's bytes depend on its contents only.
    info = tarfile.TarInfo(name)
    info.size = len(data)
    offset = tar.offset + tarfile.BLOCKSIZE
    tar.addfile(info, io.BytesIO(data))
    return Member(offset=offset, num_bytes=len(data), sha256=sha256_bytes(data))


def _npy(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
