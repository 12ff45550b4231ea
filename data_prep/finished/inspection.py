"""Inspection of a finished prep folder: counts, the longest documents, any document's text."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from cluster.errors import UserError
from data_prep.documents import DocumentMeta
from data_prep.finished.prepared import BlockEntry, PreparedCorpus
from data_prep.finished.summary import summarise


@dataclass(frozen=True)
class ListedDocument:
    """A kept document, with columns of the ledger."""

    id: str
    source: str
    repository: str
    path: str
    language: str
    num_text_bytes: int
    num_tokens: int


@dataclass(frozen=True)
class Overview:
    """An overview: `summary` is that of the prep stage, recomputed; `longest` are the documents with most tokens."""

    summary: dict[str, Any]
    longest: tuple[ListedDocument, ...]


@dataclass(frozen=True)
class ShownDocument:
    """A document and its complete text, decoded from its tokens."""

    split: str
    block: BlockEntry
    meta: DocumentMeta
    num_tokens: int
    text: str


def overview(corpus: PreparedCorpus, num_longest: int) -> Overview:
    """Return counts over the ledger and the `num_longest` longest documents. UserError when the ledger is damaged."""
    ledger = corpus.ledger()
    kept = ledger.filter(pc.equal(ledger.column("decision"), "kept"))
    order = pc.sort_indices(
        kept, sort_keys=[("num_tokens", "descending"), ("source", "ascending"), ("id", "ascending")]
    )
    longest = kept.take(order[:num_longest]).select(list(ListedDocument.__dataclass_fields__))
    return Overview(
        summary=summarise(ledger, corpus.manifest),
        longest=tuple(ListedDocument(**row) for row in longest.to_pylist()),
    )


def sample_ids(corpus: PreparedCorpus, num_documents: int, seed: int = 0) -> list[str]:
    """Return ids of random kept documents, the same for the same seed; fewer if there are fewer."""
    ledger = corpus.ledger(["id", "decision"])
    ids = ledger.filter(pc.equal(ledger.column("decision"), "kept")).column("id")
    rows = np.random.default_rng(seed).permutation(len(ids))[:num_documents]
    return [str(ids[int(row)].as_py()) for row in rows]


def read_document(corpus: PreparedCorpus, document_id: str) -> ShownDocument:
    """Return the document of this id. UserError when there is none, its file was dropped or its block is damaged."""
    ledger = corpus.ledger(["id", "decision", "rule", "split", "block"])
    rows = ledger.filter(pc.equal(ledger.column("id"), document_id)).to_pylist()
    if not rows:
        raise UserError(
            f"{corpus.folder} has no document {document_id}: ids are the column `id` of {corpus.manifest.ledger}"
        )
    row = next((row for row in rows if row["decision"] == "kept"), None)
    if row is None:
        raise UserError(
            f"{corpus.folder}: document {document_id} was dropped by rule {rows[0]['rule']}; its text is not stored: "
            "give the id of a kept one"
        )
    entry = next(entry for entry in corpus.blocks(row["split"]) if entry.key == row["block"])
    block = corpus.read_block(entry)
    number = next(i for i, meta in enumerate(block.docs) if meta.id == document_id)
    tokens = block.document_tokens(number)
    return ShownDocument(
        row["split"], entry, block.docs[number], len(tokens), corpus.tokenizer.decode(tokens)
    )
