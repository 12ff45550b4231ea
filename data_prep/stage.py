"""The prep stage: from a corpus to a finished prep folder."""

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cluster.ray_session import FileTask, run_file_tasks
from cluster.reporter import Reporter
from cluster.storage import fingerprint, sha256_bytes, sha256_file, write_bytes
from data_prep.config import PrepConfig
from data_prep.decisions import OVER_BUDGET, ReadFile, decide
from data_prep.documents import SPLITS, DocumentMeta, SourceFile
from data_prep.ledger import LedgerRow, dropped_by_rule, read_ledger, write_ledger
from data_prep.manifest import (
    FORMAT_VERSION,
    LEDGER_NAME,
    MANIFEST_NAME,
    TOKENIZER_NAME,
    Manifest,
    Shard,
    read_manifest,
    write_manifest,
)
from data_prep.ordering import keyed_hash
from data_prep.reading import cut_into_partitions, read_partition_task
from data_prep.shard_plan import PlannedDocument, PlannedShard, plan_shards
from data_prep.shards import WrittenShard, write_shard_task
from data_prep.sources.listing import list_files, signature_of, within_budget
from data_prep.summary import summarise
from data_prep.text_store import TextRef, read_outcomes
from data_prep.tokenizer import CodeTokenizer
from data_prep.tokenizer_training import train_tokenizer_task

MB = 1_000_000
_SIGNATURE_NAME = ".input-signature"
"""What the folder was made from. It knows times, so it is not part of the manifest, which is the same everywhere."""
_NUM_REMOVALS = 5


def run_prep(config: PrepConfig, seed: int, folder: Path, reporter: Reporter) -> dict[str, Any]:
    """Read, filter, drop duplicates, split, train the tokenizer, write shards; returns the summary.

    Needs an open Ray session. Intermediate files lie in `folder`/work under names made from what they
    depend on: killed anywhere and called again, it goes on, and the bytes are the same. The manifest is
    written last. UserError when the corpus is missing or holds nothing usable, or the disk is full.
    """
    files = list_files(config.source)
    if (folder / MANIFEST_NAME).is_file():
        summary = _finished_summary(config, seed, folder, files)
        if summary is not None:
            return summary
        (folder / MANIFEST_NAME).unlink(missing_ok=True)
    return _Preparation(config, seed, folder, reporter).run(files)


def _finished_summary(
    config: PrepConfig, seed: int, folder: Path, files: Sequence[SourceFile]
) -> dict[str, Any] | None:
    """The summary of a folder that was finished with this config from these files; else None."""
    manifest = read_manifest(folder)
    ledger_path = folder / LEDGER_NAME
    same_config = (manifest.config_sha256, manifest.seed) == (_config_sha256(config), seed)
    if not same_config or not ledger_path.is_file() or sha256_file(ledger_path) != manifest.ledger_sha256:
        return None
    signature_path = folder / _SIGNATURE_NAME
    if not signature_path.is_file() or signature_path.read_text() != signature_of(files):
        return None
    _remove_folder(folder / "work")
    return summarise(read_ledger(ledger_path), manifest)


class _Preparation:
    """One call of `run_prep`; each method is a step and says how long it took."""

    def __init__(self, config: PrepConfig, seed: int, folder: Path, reporter: Reporter) -> None:
        self.config = config
        self.seed = seed
        self.folder = folder
        self.work = folder / "work"
        self.reporter = reporter

    def run(self, files: Sequence[SourceFile]) -> dict[str, Any]:
        read = self.read(files)
        rows = decide(read, self.config)
        documents = self.documents_by_split(read, rows)
        tokenizer_path = self.train_tokenizer(documents["train"])
        shards = [
            shard
            for split in SPLITS
            for shard in plan_shards(split, documents[split], self.config.shard_tokens)
        ]
        written = self.write_shards(shards, tokenizer_path)
        write_bytes(self.folder / _SIGNATURE_NAME, signature_of(files).encode())
        return self.finish(rows, shards, written, tokenizer_path)

    def read(self, files: Sequence[SourceFile]) -> list[ReadFile]:
        """Every listed file with what reading made of it, in the listing's order."""
        start_s = time.monotonic()
        chosen = within_budget(list(files), self.config.source.max_total_bytes)
        in_budget = [file for file in files if file.repository in chosen]
        partitions = cut_into_partitions(in_budget, self.config.num_partitions)
        python = list(sys.version_info[:2])  # what parses depends on it
        tasks = []
        for number, part in enumerate(partitions):
            listed = [(file.repository, file.path, file.num_bytes, file.mtime_ns) for file in part]
            key = [python, self.config.filters.model_dump(mode="json"), listed]
            output = self._work_path("read", key, "arrow")
            tasks.append(FileTask(f"read {number}", output, (part, self.config.filters)))
        sizes = [sum(file.num_bytes for file in part) for part in partitions]
        self._run("read and filter", read_partition_task, tasks, sizes)
        found: dict[tuple[str, str], ReadFile] = {}
        for task, part in zip(tasks, partitions, strict=True):
            for row, (file, outcome) in enumerate(zip(part, read_outcomes(task.output), strict=True)):
                text = TextRef(str(task.output), row)
                found[file.repository, file.path] = ReadFile(file, outcome, text)
        self._say(f"read {len(in_budget):,} of {len(files):,} files, {sum(sizes) / MB:.1f} MB", start_s)
        return [
            found.get((file.repository, file.path)) or ReadFile(file, OVER_BUDGET, None) for file in files
        ]

    def documents_by_split(
        self, read: Sequence[ReadFile], rows: Sequence[LedgerRow]
    ) -> dict[str, list[PlannedDocument]]:
        """The kept documents in the order of the shards: repositories in keyed-hash order, then by path."""
        num_dropped = ", ".join(f"{rule} {count:,}" for rule, count in dropped_by_rule(rows).items())
        num_kept = sum(row.fate == "kept" for row in rows)
        self.reporter.line(f"prep: kept {num_kept:,} files; dropped: {num_dropped or 'none'}")
        documents: dict[str, list[PlannedDocument]] = {split: [] for split in SPLITS}
        for item, row in zip(read, rows, strict=True):
            if row.split is not None and item.text is not None:
                documents[row.split].append(_planned_document(item, item.text))
        for kept in documents.values():
            kept.sort(key=lambda d: (keyed_hash(self.seed, "order", d.meta.repository), d.meta.path))
        return documents

    def train_tokenizer(self, train: Sequence[PlannedDocument]) -> Path:
        """Path of the tokenizer, trained on a sample of the train split."""
        start_s = time.monotonic()
        config = self.config.tokenizer
        sample = _sample(train, config.sample_bytes, self.seed)
        key = [config.model_dump(mode="json"), [document.meta.sha256 for document in sample]]
        output = self._work_path("tokenizer", key, "json")
        refs = tuple(document.text for document in sample)
        num_bytes = sum(document.meta.num_bytes for document in sample)
        task = FileTask("train tokenizer", output, (refs, config))
        self._run("train tokenizer", train_tokenizer_task, [task], [num_bytes])
        self._say(f"trained the tokenizer on {len(sample):,} files, {num_bytes / MB:.1f} MB", start_s)
        return output

    def write_shards(self, shards: Sequence[PlannedShard], tokenizer_path: Path) -> list[WrittenShard]:
        """Write every tar to its final place; returns what is in them."""
        start_s = time.monotonic()
        tokenizer_sha256 = sha256_file(tokenizer_path)
        tasks = []
        for shard in shards:
            metas = [asdict(document.meta) for document in shard.documents]
            key = [shard.name, self.config.block_tokens, tokenizer_sha256, metas]
            tar_path = self.folder / "shards" / f"{shard.name}.tar"
            arguments = (shard, tokenizer_path, self.config.block_tokens, tar_path)
            tasks.append(FileTask(shard.name, self._work_path("shard", key, "json"), arguments))
        sizes = [sum(document.meta.num_bytes for document in shard.documents) for shard in shards]
        self._run("tokenise and write shards", write_shard_task, tasks, sizes)
        written = [WrittenShard.model_validate_json(task.output.read_bytes()) for task in tasks]
        num_tokens = sum(sum(shard.document_tokens) for shard in written)
        self._say(f"wrote {len(shards)} shards, {num_tokens / 1e6:.1f}M tokens", start_s)
        return written

    def finish(
        self,
        rows: Sequence[LedgerRow],
        shards: Sequence[PlannedShard],
        written: Sequence[WrittenShard],
        tokenizer_path: Path,
    ) -> dict[str, Any]:
        """Put indexes, tokenizer, ledger and, last, the manifest in place; returns the summary."""
        write_bytes(self.folder / TOKENIZER_NAME, tokenizer_path.read_bytes())
        tokenizer = CodeTokenizer.load(self.folder / TOKENIZER_NAME)
        splits: dict[str, list[Shard]] = {split: [] for split in SPLITS}
        for planned, shard in zip(shards, written, strict=True):
            splits[planned.split].append(self._write_index(planned, shard))
        self._remove_strangers({planned.name for planned in shards})
        full_rows = _with_tokens(rows, shards, written)
        write_ledger(self.folder / LEDGER_NAME, full_rows)
        manifest = Manifest(
            config_sha256=_config_sha256(self.config),
            seed=self.seed,
            tokenizer_sha256=tokenizer.fingerprint,
            vocab_size=tokenizer.vocab_size,
            ledger_sha256=sha256_file(self.folder / LEDGER_NAME),
            splits={split: tuple(entries) for split, entries in splits.items()},
        )
        write_manifest(self.folder, manifest)
        _remove_folder(self.work)
        return summarise(full_rows, manifest)

    def _write_index(self, planned: PlannedShard, shard: WrittenShard) -> Shard:
        data = (shard.index.model_dump_json(indent=1) + "\n").encode()
        write_bytes(self.folder / "shards" / f"{planned.name}.index.json", data)
        return Shard(
            name=planned.name,
            num_blocks=len(shard.index.blocks),
            num_docs=len(planned.documents),
            num_tokens=sum(shard.document_tokens),
            num_text_bytes=sum(block.num_text_bytes for block in shard.index.blocks),
            tar_bytes=shard.tar_bytes,
            tar_sha256=shard.tar_sha256,
            index_sha256=sha256_bytes(data),
        )

    def _remove_strangers(self, names: set[str]) -> None:
        """Remove what a killed call left half-written, and shards of a corpus that has changed since."""
        for path in (self.folder / "shards").iterdir():
            if path.name.split(".")[0] not in names:
                path.unlink(missing_ok=True)
        for path in self.folder.glob(".*.tmp"):
            path.unlink(missing_ok=True)

    def _run(
        self, label: str, function: Callable[..., None], tasks: Sequence[FileTask], sizes: Sequence[int]
    ) -> None:
        """Run the tasks under a bar that counts their bytes."""
        num_found = sum(task.output.exists() for task in tasks)
        if num_found:
            self.reporter.line(
                f"prep: {label}: going on, {num_found} of {len(tasks)} parts are already there"
            )
        size_of: Mapping[str, int] = {task.name: size for task, size in zip(tasks, sizes, strict=True)}
        with self.reporter.bar(label, total=sum(sizes) / MB, unit="MB") as bar:
            run_file_tasks(function, tasks, lambda task: bar.advance(size_of[task.name] / MB))

    def _work_path(self, kind: str, key: Any, suffix: str) -> Path:
        return self.work / f"{kind}-{fingerprint([FORMAT_VERSION, key])[:16]}.{suffix}"

    def _say(self, fact: str, start_s: float) -> None:
        self.reporter.line(f"prep: {fact} in {time.monotonic() - start_s:.1f} s")


def _remove_folder(folder: Path) -> None:
    """Remove `folder`, although a killed call's last task may just be writing its output there."""
    doomed = folder.with_name(f".{folder.name}.old")
    for _ in range(_NUM_REMOVALS):
        shutil.rmtree(doomed, ignore_errors=True)
        try:
            folder.rename(doomed)
        except FileNotFoundError:
            break
        except OSError:  # some of `doomed` is still there
            continue
    shutil.rmtree(doomed, ignore_errors=True)


def _config_sha256(config: PrepConfig) -> str:
    return fingerprint(config.model_dump(mode="json"))


def _planned_document(item: ReadFile, text: TextRef) -> PlannedDocument:
    file, outcome = item.file, item.outcome
    meta = DocumentMeta(
        id=file.document_id,
        source=file.source,
        repository=file.repository,
        path=file.path,
        language=file.language,
        licence=file.licence,
        sha256=outcome.sha256 or "",
        num_bytes=outcome.num_text_bytes,
    )
    return PlannedDocument(meta, text)


def _sample(documents: Sequence[PlannedDocument], max_bytes: int, seed: int) -> list[PlannedDocument]:
    """Documents in keyed-hash order until `max_bytes` is reached, handed back in their own order."""
    order = sorted(
        range(len(documents)), key=lambda i: keyed_hash(seed, "tokenizer sample", documents[i].meta.id)
    )
    chosen: list[int] = []
    num_bytes = 0
    for position in order:
        if num_bytes >= max_bytes:
            break
        chosen.append(position)
        num_bytes += documents[position].meta.num_bytes
    return [documents[position] for position in sorted(chosen)]


def _with_tokens(
    rows: Sequence[LedgerRow], shards: Sequence[PlannedShard], written: Sequence[WrittenShard]
) -> list[LedgerRow]:
    num_tokens = {
        (document.meta.repository, document.meta.path): count
        for planned, shard in zip(shards, written, strict=True)
        for document, count in zip(planned.documents, shard.document_tokens, strict=True)
    }
    return [replace(row, num_tokens=num_tokens.get((row.repository, row.path))) for row in rows]
