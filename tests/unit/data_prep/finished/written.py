"""Finished prep folders that are written without a corpus: known documents in known blocks and tars."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from cluster.storage import sha256_bytes, sha256_file, write_bytes
from data_prep.documents import DocumentMeta, document_id
from data_prep.finished.ledger import LEDGER_SCHEMA, write_ledger
from data_prep.finished.manifest import Manifest, Shard, write_manifest
from data_prep.steps.finishing import count_sources, write_index
from data_prep.steps.shards import Sample, write_tar
from data_prep.steps.tokenizer_training import train_tokenizer
from data_prep.tokenizer import CodeTokenizer
from data_prep.tokenizers.config import TokenizerConfig

SOURCE = "here"


@dataclass(frozen=True)
class Document:
    """A document to write."""

    repository: str
    path: str
    text: str
    language: str = "Python"
    licence: str | None = None

    @property
    def id(self) -> str:
        return document_id(SOURCE, self.repository, self.path, "")


# split -> tars -> blocks -> documents
Layout = Mapping[str, Sequence[Sequence[Sequence[Document]]]]


def write_prepared(folder: Path, layout: Layout) -> Path:
    """Write the folder; besides the documents, the ledger has one file that a rule dropped."""
    texts = [d.text.encode() for tars in layout.values() for tar in tars for block in tar for d in block]
    write_bytes(folder / "tokenizer.json", train_tokenizer(iter(texts), TokenizerConfig(vocab_size=400)))
    tokenizer = CodeTokenizer.load(folder / "tokenizer.json")
    rows: list[dict[str, object]] = [_dropped_row()]
    splits: dict[str, tuple[Shard, ...]] = {}
    for split, tars in layout.items():
        shards = []
        for number, blocks in enumerate(tars):
            shards.append(_write_shard(folder, split, number, blocks, tokenizer, rows))
        splits[split] = tuple(shards)
    rows.sort(key=lambda row: (row["source"], row["repository"], row["path"]))
    write_ledger(folder / "ledger.parquet", pa.Table.from_pylist(rows, schema=LEDGER_SCHEMA))
    manifest = Manifest(
        config_sha256="0" * 64,
        seed=0,
        tokenizer_sha256=tokenizer.fingerprint,
        vocab_size=tokenizer.vocab_size,
        ledger_sha256=sha256_file(folder / "ledger.parquet"),
        sources=count_sources(splits, {SOURCE: 1.0}),
        splits=splits,
    )
    write_manifest(folder, manifest)
    return folder


def _write_shard(
    folder: Path,
    split: str,
    number: int,
    blocks: Sequence[Sequence[Document]],
    tokenizer: CodeTokenizer,
    rows: list[dict[str, object]],
) -> Shard:
    name = f"{split}-{number:05d}"
    samples = []
    for place, documents in enumerate(blocks):
        key = f"{name}-{place:05d}"
        tokens = [np.append(tokenizer.encode(d.text), tokenizer.dtype(tokenizer.eod_id)) for d in documents]
        metas = [_meta(document) for document in documents]
        samples.append(Sample(key, tokens, metas))
        rows += [_kept_row(meta, split, key, len(array)) for meta, array in zip(metas, tokens, strict=True)]
    tar = folder / "shards" / f"{name}.tar"
    written, tar_sha256 = write_tar(tar, samples)
    return write_index(folder, name, SOURCE, written, tar_sha256)


def _meta(document: Document) -> DocumentMeta:
    data = document.text.encode()
    return DocumentMeta(
        document.id,
        SOURCE,
        document.repository,
        document.path,
        document.language,
        document.licence,
        sha256_bytes(data),
        len(data),
    )


def _kept_row(meta: DocumentMeta, split: str, block: str, num_tokens: int) -> dict[str, object]:
    return {
        "id": meta.id,
        "source": meta.source,
        "repository": meta.repository,
        "path": meta.path,
        "location": "",
        "language": meta.language,
        "licence": meta.licence,
        "num_bytes": meta.num_bytes,
        "num_text_bytes": meta.num_bytes,
        "sha256": meta.sha256,
        "decision": "kept",
        "split": split,
        "block": block,
        "num_tokens": num_tokens,
    }


def _dropped_row() -> dict[str, object]:
    return {
        "id": document_id(SOURCE, "alpha", "dropped.py", ""),
        "source": SOURCE,
        "repository": "alpha",
        "path": "dropped.py",
        "location": "",
        "language": "Python",
        "num_bytes": 3,
        "decision": "dropped",
        "rule": "file_size",
        "value": 3.0,
    }
