"""Removal of documents from a finished prep folder: only the tars that contain them are rewritten."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cluster.errors import UserError
from cluster.storage import sha256_file
from data_prep.finished.forget_requests import FORGOTTEN_RULE, ForgetRequest, ForgetRequests
from data_prep.finished.ledger import write_ledger
from data_prep.finished.manifest import Manifest, Shard, write_manifest
from data_prep.finished.prepared import BlockEntry, PreparedCorpus, open_prepared
from data_prep.steps.finishing import count_sources, remove_unnamed, write_index
from data_prep.steps.shards import Sample, write_tar

_REVISION_MARK = "-r"
_REVISION_SUFFIX = re.compile(rf"{_REVISION_MARK}\d+$")
# Columns with the place of a document, which are cleared for forgotten ones.
_PLACE_COLUMNS = ("split", "block", "num_tokens")


@dataclass(frozen=True)
class Forgetting:
    """The documents that requests remove from a folder.

    `shards` are the tars to be rewritten, of `num_shards` in all; `revision` is that of the manifest afterwards.
    `num_rows` files of the ledger, kept or not, match the last request; `copies` are kept files that do not match
    ("source:repository:path") but that matching files duplicate; `empty_splits` have no document afterwards.
    """

    num_rows: int
    copies: tuple[str, ...]
    num_documents: int
    num_tokens: int
    num_text_bytes: int
    repositories: tuple[str, ...]
    splits: tuple[str, ...]
    empty_splits: tuple[str, ...]
    shards: tuple[str, ...]
    num_shards: int
    revision: int


def plan_forgetting(folder: Path, requests: Sequence[ForgetRequest]) -> Forgetting:
    """Return what `forget` would do, without changes. UserError when the folder is not finished or damaged."""
    return _Revision(folder, requests).forgetting


def forget(folder: Path, requests: Sequence[ForgetRequest]) -> Forgetting:
    """Remove the documents that match `requests` from the folder; only one call at a time is allowed.

    New tars, indexes and the ledger get new names, then the manifest is replaced, then the files that it no longer
    names are removed: readers see the old state or the new one. A killed call can be repeated. If nothing matches the
    requests (any more), no file that the manifest names changes. The tokenizer stays. UserError when the folder is not
    finished or damaged, or the disk is full.
    """
    revision = _Revision(folder, requests)
    if revision.forgetting.num_documents:
        revision.write()
    remove_unnamed(folder, open_prepared(folder).manifest)
    return revision.forgetting


class _Revision:
    """The state of a folder after the requests."""

    def __init__(self, folder: Path, requests: Sequence[ForgetRequest]) -> None:
        self._folder = folder
        self._corpus: PreparedCorpus = open_prepared(folder)
        self._manifest = self._corpus.manifest
        self._number = self._manifest.revision + 1
        self._ledger = self._corpus.ledger()
        columns = (self._ledger.column(name).to_pylist() for name in ("repository", "path", "decision"))
        repositories, paths, decisions = columns
        reasons = ForgetRequests(tuple(requests)).match(repositories, paths)
        last_reasons = ForgetRequests(tuple(requests[-1:])).match(repositories, paths)
        num_rows = sum(why is not None for why in last_reasons)
        self._reasons = [
            why if decision == "kept" else None for why, decision in zip(reasons, decisions, strict=True)
        ]
        mask = pa.array([why is not None for why in self._reasons])
        self._removed = self._ledger.filter(mask)
        self._removed_ids = set(self._removed.column("id").to_pylist())
        changed_blocks = set(self._removed.column("block").to_pylist())
        shards = [shard for entries in self._manifest.splits.values() for shard in entries]
        entries = [entry for split in self._manifest.splits for entry in self._corpus.blocks(split)]
        changed_shards = {entry.shard for entry in entries if entry.key in changed_blocks}
        self.forgetting = Forgetting(
            num_rows=num_rows,
            copies=self._copies(last_reasons, reasons),
            num_documents=self._removed.num_rows,
            num_tokens=pc.sum(self._removed.column("num_tokens")).as_py() or 0,
            num_text_bytes=pc.sum(self._removed.column("num_text_bytes")).as_py() or 0,
            repositories=_distinct(self._removed, "repository"),
            splits=_distinct(self._removed, "split"),
            empty_splits=self._empty_splits(),
            shards=tuple(shard.name for shard in shards if shard.name in changed_shards),
            num_shards=len(shards),
            revision=self._number if self._removed.num_rows else self._manifest.revision,
        )

    def _copies(self, last_reasons: Sequence[str | None], reasons: Sequence[str | None]) -> tuple[str, ...]:
        """Return kept files that match no request, but that files matching the last request duplicate."""
        columns = [
            self._ledger.column(n).to_pylist() for n in ("source", "repository", "path", "duplicate_of")
        ]
        names = [":".join(row[:3]) for row in zip(*columns, strict=True)]
        matching = {name for name, why in zip(names, reasons, strict=True) if why is not None}
        originals = {of for of, why in zip(columns[3], last_reasons, strict=True) if why is not None and of}
        return tuple(sorted(originals - matching))

    def _empty_splits(self) -> tuple[str, ...]:
        num_removed = Counter(self._removed.column("split").to_pylist())
        num_docs = {
            split: sum(shard.num_docs for shard in shards) for split, shards in self._manifest.splits.items()
        }
        return tuple(sorted(split for split, num in num_docs.items() if num == num_removed[split]))

    def write(self) -> None:
        """Write the new state of the folder."""
        splits = {
            split: tuple(self._shards(split, shards)) for split, shards in self._manifest.splits.items()
        }
        self._refuse_disagreement(splits)
        ledger_name = f"ledger{_REVISION_MARK}{self._number}.parquet"
        write_ledger(self._folder / ledger_name, self._new_ledger())
        weights = {name: source.weight for name, source in self._manifest.sources.items()}
        content = self._manifest.model_dump() | {
            "revision": self._number,
            "ledger": ledger_name,
            "ledger_sha256": sha256_file(self._folder / ledger_name),
            "sources": count_sources(splits, weights),
            "splits": splits,
        }
        write_manifest(self._folder, Manifest.model_validate(content))

    def _shards(self, split: str, shards: Sequence[Shard]) -> Iterator[Shard]:
        """Yield the split's tars after this revision, without those that have no document left."""
        entries = self._corpus.blocks(split)
        for shard in shards:
            if shard.name not in self.forgetting.shards:
                yield shard
                continue
            name = f"{_REVISION_SUFFIX.sub('', shard.name)}{_REVISION_MARK}{self._number}"
            tar = self._folder / "shards" / f"{name}.tar"
            blocks, tar_sha256 = write_tar(tar, self._samples(shard, entries))
            if blocks:
                yield write_index(self._folder, name, shard.source, blocks, tar_sha256)
            else:
                tar.unlink()

    def _samples(self, shard: Shard, entries: Sequence[BlockEntry]) -> Iterator[Sample]:
        """Yield the remaining content of the tar's blocks, which keep their keys."""
        for entry in entries:
            if entry.shard != shard.name:
                continue
            block = self._corpus.read_block(entry)
            stay = [i for i, meta in enumerate(block.docs) if meta.id not in self._removed_ids]
            if stay:
                yield Sample(
                    entry.key, [block.document_tokens(i) for i in stay], [block.docs[i] for i in stay]
                )

    def _new_ledger(self) -> Any:
        table = self._ledger
        is_removed = pa.array([why is not None for why in self._reasons])
        changes = {
            "decision": pa.scalar("dropped"),
            "rule": pa.scalar(FORGOTTEN_RULE),
            "value": pa.scalar(None, pa.float64()),
            "detail": pa.array(self._reasons, pa.string()),
        }
        changes |= {name: pa.scalar(None, table.schema.field(name).type) for name in _PLACE_COLUMNS}
        for name, value in changes.items():
            position = table.schema.get_field_index(name)
            column = pc.if_else(is_removed, value, table.column(name))
            table = table.set_column(position, name, column)
        return table

    def _refuse_disagreement(self, splits: dict[str, tuple[Shard, ...]]) -> None:
        num_before = sum(shard.num_docs for shards in self._manifest.splits.values() for shard in shards)
        num_after = sum(shard.num_docs for shards in splits.values() for shard in shards)
        if num_before - num_after != self.forgetting.num_documents:
            raise UserError(
                f"{self._folder}: the ledger names {self.forgetting.num_documents} documents to forget, but the "
                f"shards contain {num_before - num_after} of them: remove the folder and run prep again"
            )


def _distinct(table: Any, column: str) -> tuple[str, ...]:
    return tuple(sorted(pc.unique(table.column(column)).to_pylist()))
