"""Write one tar of blocks."""

import io
import tarfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cluster.config import Config
from cluster.storage import atomic_file, canonical_json, sha256_bytes, sha256_file, write_bytes
from data_prep.documents import DocumentMeta
from data_prep.manifest import DOCS_MEMBER, META_MEMBER, TOKENS_MEMBER, IndexedBlock, Member, ShardIndex
from data_prep.shard_plan import PlannedShard, even_cuts
from data_prep.text_store import read_texts
from data_prep.tokenizer import CodeTokenizer, TokenArray

# Texts tokenised at a time: bounds memory, and gives the tokenizer enough to do per call.
_BATCH_DOCUMENTS = 64


class WrittenShard(Config):
    """What a shard task leaves for the driver once its tar is in place."""

    index: ShardIndex
    document_tokens: tuple[int, ...]
    tar_bytes: int
    tar_sha256: str


def write_shard_task(
    shard: PlannedShard, tokenizer_path: Path, block_tokens: int, tar_path: Path, output: Path
) -> None:
    """Tokenise the shard's documents and write them to `tar_path`, then its `WrittenShard` to `output`."""
    tokenizer = CodeTokenizer.load(tokenizer_path)
    arrays = tokenize_documents(shard, tokenizer)
    sizes = np.array([len(tokens) for tokens in arrays], dtype=np.int64)
    bounds = even_cuts(sizes, block_tokens)
    blocks = []
    with (
        atomic_file(tar_path) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for number, (start, end) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
            metas = [document.meta for document in shard.documents[start:end]]
            blocks.append(add_block(tar, f"{shard.name}-{number:05d}", arrays[start:end], metas))
    written = WrittenShard(
        index=ShardIndex(blocks=tuple(blocks)),
        document_tokens=tuple(sizes.tolist()),
        tar_bytes=tar_path.stat().st_size,
        tar_sha256=sha256_file(tar_path),
    )
    write_bytes(output, written.model_dump_json().encode())


def tokenize_documents(shard: PlannedShard, tokenizer: CodeTokenizer) -> list[TokenArray]:
    """The tokens of each document, ended by `<eod>`."""
    texts = read_texts([document.text for document in shard.documents])
    end = np.array([tokenizer.eod_id], dtype=tokenizer.dtype)
    arrays: list[TokenArray] = []
    batch: list[str] = []
    for number, text in enumerate(texts, start=1):
        batch.append(text)
        if len(batch) == _BATCH_DOCUMENTS or number == len(shard.documents):
            arrays += [np.concatenate([ids, end]) for ids in tokenizer.encode_batch(batch)]
            batch = []
    return arrays


def add_block(
    tar: tarfile.TarFile, key: str, arrays: list[TokenArray], metas: list[DocumentMeta]
) -> IndexedBlock:
    """Append one sample; returns where its members lie."""
    ends = np.cumsum([len(tokens) for tokens in arrays], dtype=np.int64)
    starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])
    contents = {
        TOKENS_MEMBER: _npy(np.concatenate(arrays)),
        DOCS_MEMBER: _npy(starts),
        META_MEMBER: canonical_json({"documents": [asdict(meta) for meta in metas]}).encode(),
    }
    return IndexedBlock(
        key=key,
        num_tokens=int(ends[-1]),
        num_docs=len(metas),
        num_text_bytes=sum(meta.num_bytes for meta in metas),
        members={name: _add_member(tar, f"{key}.{name}", data) for name, data in contents.items()},
    )


def _add_member(tar: tarfile.TarFile, name: str, data: bytes) -> Member:
    # A fresh TarInfo has no time, owner or group: the tar's bytes depend on its contents alone.
    info = tarfile.TarInfo(name)
    info.size = len(data)
    offset = tar.offset + tarfile.BLOCKSIZE
    tar.addfile(info, io.BytesIO(data))
    return Member(offset=offset, num_bytes=len(data), sha256=sha256_bytes(data))


def _npy(array: NDArray[Any]) -> bytes:
    buffer: BinaryIO = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    buffer.seek(0)
    return buffer.read()
