"""A prep folder is read as it was written, and damage is found."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cluster.errors import UserError
from cluster.storage import sha256_bytes
from data_prep.finished.ledger import read_ledger
from data_prep.finished.prepared import open_prepared

Prepared = tuple[Path, dict[str, Any]]


def flip_bit(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def test_every_kept_document_can_be_read(prepared: Prepared) -> None:
    folder, _ = prepared
    corpus = open_prepared(folder)
    rows = [SimpleNamespace(**row) for row in read_ledger(folder / "ledger.parquet").to_pylist()]
    kept = {(row.repository, row.path): row for row in rows if row.split}
    seen = []
    for split in ("train", "validation", "test"):
        for entry in corpus.blocks(split):
            block = corpus.read_block(entry)
            assert len(block.tokens) == entry.num_tokens
            assert len(block.docs) == len(block.doc_starts) == entry.num_docs
            assert sum(meta.num_bytes for meta in block.docs) == entry.num_text_bytes
            assert block.tokens.dtype == np.uint16
            for i, meta in enumerate(block.docs):
                tokens = block.document_tokens(i)
                row = kept[meta.repository, meta.path]
                assert (row.split, row.num_tokens, row.sha256) == (split, len(tokens), meta.sha256)
                assert tokens[-1] == corpus.tokenizer.eod_id
                text = corpus.tokenizer.decode(tokens).encode()
                assert sha256_bytes(text) == meta.sha256
                assert len(text) == meta.num_bytes
                seen.append((meta.repository, meta.path))
    assert sorted(seen) == sorted(kept)
    assert corpus.manifest.num_tokens("train") == sum(e.num_tokens for e in corpus.blocks("train"))


def test_files_of_a_repository_are_consecutive_in_path_order(prepared: Prepared) -> None:
    corpus = open_prepared(prepared[0])
    metas = [meta for entry in corpus.blocks("train") for meta in corpus.read_block(entry).docs]
    names = [meta.repository for meta in metas]
    assert sum(a != b for a, b in zip(names[:-1], names[1:], strict=True)) == len(set(names)) - 1
    for name in set(names):
        paths = [meta.path for meta in metas if meta.repository == name]
        assert paths == sorted(paths)


@pytest.mark.parametrize("member", ["tokens.npy", "docs.npy", "meta.json"])
def test_a_flipped_bit_in_a_member_is_found(prepared: Prepared, member: str) -> None:
    folder, _ = prepared
    entry = open_prepared(folder).blocks("train")[-1]
    range_ = entry.members[member]
    for position in (
        range_.offset,
        range_.offset + range_.num_bytes // 2,
        range_.offset + range_.num_bytes - 1,
    ):
        flip_bit(folder / "shards" / f"{entry.shard}.tar", position)
        with pytest.raises(
            UserError, match=rf"{entry.shard}\.tar is damaged in block {entry.key} \({member}"
        ):
            open_prepared(folder).read_block(entry)
        flip_bit(folder / "shards" / f"{entry.shard}.tar", position)
    assert len(open_prepared(folder).read_block(entry).docs) == entry.num_docs


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("manifest.json", "manifest.json"),
        ("shards/train-00000.index.json", "index .*train-00000.index.json is damaged"),
        ("tokenizer.json", "tokenizer .*tokenizer.json is damaged"),
    ],
)
def test_a_flipped_bit_beside_the_tars_is_found(prepared: Prepared, name: str, message: str) -> None:
    folder, _ = prepared
    size = (folder / name).stat().st_size
    for position in range(0, size, max(1, size // 20)):
        flip_bit(folder / name, position)
        with pytest.raises(UserError, match=message):
            _ = open_prepared(folder).tokenizer
        flip_bit(folder / name, position)
    assert open_prepared(folder).tokenizer.vocab_size == open_prepared(folder).manifest.vocab_size


def test_unfinished_missing_and_short(prepared: Prepared, tmp_path: Path) -> None:
    folder, _ = prepared
    with pytest.raises(UserError, match="not a finished prep folder"):
        open_prepared(tmp_path)
    corpus = open_prepared(folder)
    entry = corpus.blocks("train")[0]
    tar = folder / "shards" / f"{entry.shard}.tar"
    with tar.open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(UserError, match="missing or cut short"):
        corpus.read_block(entry)
    shutil.rmtree(folder / "shards")
    with pytest.raises(UserError, match="index .* is missing"):
        open_prepared(folder)
