"""The prep stage, from the sources to a finished prep folder."""

import secrets
import time
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from cluster.file_tasks import FileTask
from cluster.reporter import Reporter
from cluster.storage import sha256_bytes, sha256_file, write_bytes
from data_prep.config import PrepConfig
from data_prep.corpus.decisions import Decisions, decisions_after_reading, drop_forgotten
from data_prep.corpus.rows import Corpus, load_corpus
from data_prep.corpus.text_store import count_rows
from data_prep.corpus.work import MB, Work
from data_prep.decontamination.choice import choose_sets, record_choice, sets_in_summary
from data_prep.dedup.catalogue import DedupPart
from data_prep.dedup.clusters import near_duplicate_clusters
from data_prep.dedup.drop_duplicates import drop_exact, drop_near, preference
from data_prep.finished.forget_requests import ForgetRequest, ForgetRequests, read_requests
from data_prep.finished.manifest import FORMAT_VERSION, MANIFEST_NAME, SIGNATURE_NAME
from data_prep.finished.summary import funnel_lines
from data_prep.forget import forget
from data_prep.sources.units import WorkUnit, refuse_unreadable
from data_prep.steps.finishing import Outcome, config_sha256, finish, finished_summary, remove_folder
from data_prep.steps.inputs import Inputs
from data_prep.steps.ledger_table import ledger_table
from data_prep.steps.reading import read_unit_task
from data_prep.steps.reading_config import ReadingConfig
from data_prep.steps.repository_licences import drop_by_licence, effective_licences
from data_prep.steps.shard_plan import PlanWriter, ShardPlan, plan_corpus
from data_prep.steps.shards import WrittenShard, remove_stale_records, write_shard_task
from data_prep.steps.split import split_corpus
from data_prep.steps.tokenizer_training import source_weights, train_tokenizer_task, weighted_sample
from data_prep.tokenizer import CodeTokenizer


def run_prep(
    config: PrepConfig,
    seed: int,
    folder: Path,
    reporter: Reporter,
    forgotten: Sequence[ForgetRequest] = (),
) -> dict[str, Any]:
    """Read, filter, redact, deduplicate, split, order, train the tokenizer and write shards; return the summary.

    Needs an open Ray session. Intermediate files are in `folder`/work, under names made from what they depend on: a
    killed call can be repeated, resumes, and gives the same bytes. The manifest is written last. Files that match
    `forgotten`, or a request recorded in the folder, are dropped, even from a finished folder. The evaluation sets are
    those of `choose_sets`; in a finished folder, those with which it was made. UserError when the corpus is missing or
    has no usable file, or the disk is full.
    """
    inputs = Inputs.of(config)
    sets = config.decontamination
    requests = ForgetRequests((*forgotten, *read_requests(folder)))
    if (folder / MANIFEST_NAME).is_file():
        summary = finished_summary(config, seed, folder, inputs.signature)
        if summary is not None and requests.requests:
            forget(folder, requests.requests)
            summary = finished_summary(config, seed, folder, inputs.signature)
        if summary is not None:
            return summary | sets_in_summary(sets, folder)
    chosen = choose_sets(sets, folder)
    index = inputs.index_with(chosen)
    (folder / MANIFEST_NAME).unlink(missing_ok=True)
    record_choice(sets, chosen, folder)
    for line in chosen.lines:
        reporter.line(f"prep: {line}")
    summary = _Preparation(config, seed, folder, reporter, requests).run(inputs, index)
    return summary | sets_in_summary(sets, folder)


class _Preparation:
    """One call of `run_prep`; each method is a step and reports how long it took."""

    def __init__(
        self, config: PrepConfig, seed: int, folder: Path, reporter: Reporter, requests: ForgetRequests
    ) -> None:
        self.config = config
        self.requests = requests
        self.seed = seed
        self.folder = folder
        self.reporter = reporter
        self.work = Work(folder / "work", reporter, FORMAT_VERSION)

    def run(self, inputs: Inputs, index: bytes | None) -> dict[str, Any]:
        corpus = self.read(inputs.units, self.index_file(index))
        licences = effective_licences(corpus)
        decisions = self.decide(corpus, licences)
        splits = split_corpus(corpus, decisions, self.config.split)
        plan = plan_corpus(corpus, splits, self.config, self.seed)
        tokenizer_path = self.train_tokenizer(corpus, splits["train"])
        written = self.write_shards(corpus.with_licences(licences), plan, tokenizer_path)
        write_bytes(self.folder / SIGNATURE_NAME, inputs.signature.encode())
        ledger = ledger_table(corpus, decisions, licences, plan, written)
        outcome = Outcome(plan, tuple(written), ledger, tokenizer_path, source_weights(self.config.source))
        summary = finish(self.folder, config_sha256(self.config), self.seed, outcome)
        remove_folder(self.work.folder)
        for line in funnel_lines(summary):
            self.reporter.line(line)
        return summary

    def index_file(self, index: bytes | None) -> Path | None:
        """Write the evaluation sets' index to a file for the workers, named by its content."""
        if index is None:
            return None
        path = self.work.path("evaluation", sha256_bytes(index), "npz")
        write_bytes(path, index)
        return path

    def read(self, units: Sequence[WorkUnit], index: Path | None) -> Corpus:
        """Read every file of every source."""
        start_s = time.monotonic()
        config = ReadingConfig.of(self.config)
        index_name = None if index is None else index.name
        run_id = secrets.token_hex(8)
        tasks = []
        for unit in units:
            key = [config.key(), index_name, unit.source, unit.name, unit.signature]
            arguments = (unit, config, index, run_id)
            tasks.append(
                FileTask(f"{unit.source}: {unit.name}", self.work.path("read", key, "arrow"), arguments)
            )
        sizes_bytes = [unit.num_bytes for unit in units]
        self.work.run("read and filter", read_unit_task, tasks, sizes_bytes, _KeptFiles())
        corpus = load_corpus([(unit.source, task.output) for unit, task in zip(units, tasks, strict=True)])
        _refuse_unreadable_sources(units, corpus)
        self._report(f"read {len(corpus):,} files, {sum(sizes_bytes) / MB:.1f} MB", start_s)
        return corpus

    def decide(self, corpus: Corpus, licences: Sequence[str | None]) -> Decisions:
        """Decide on every file: rules on single files, then licences, exact and near duplicates."""
        start_s = time.monotonic()
        decisions = decisions_after_reading(corpus)
        drop_forgotten(corpus, decisions, self.requests)
        drop_by_licence(licences, decisions, self.config.licences)
        rank = preference(corpus)
        drop_exact(corpus, decisions, rank)
        if self.config.near_duplicates.enabled:
            rows, parts = _rows_with_signature(corpus, decisions)
            labels = near_duplicate_clusters(parts, self.config.near_duplicates, self.work)
            drop_near(decisions, rows, labels, rank)
        dropped = Counter(rule for rule in decisions.rule.tolist() if rule is not None).most_common()
        by_rule = ", ".join(f"{rule} {count:,}" for rule, count in dropped)
        self._report(f"kept {len(decisions.kept()):,} files; dropped: {by_rule or 'none'}", start_s)
        return decisions

    def train_tokenizer(self, corpus: Corpus, train: NDArray[np.int64]) -> Path:
        """Train the tokenizer on a weighted sample of the train split; return its path."""
        start_s = time.monotonic()
        config = self.config.tokenizer
        weights = source_weights(self.config.source)
        sample = weighted_sample(corpus, train, weights, config.sample_bytes, self.seed)
        versions = [version(name) for name in ("tokenizers", "sentencepiece")]
        key = [config.model_dump(mode="json"), versions, corpus.strings("sha256")[sample].tolist()]
        texts = tuple((str(corpus.parts[corpus.part[row]]), int(corpus.row[row])) for row in sample.tolist())
        num_bytes = int(corpus.integers("num_text_bytes")[sample].sum())
        task = FileTask("train tokenizer", self.work.path("tokenizer", key, "json"), (texts, config))
        self.work.run("train tokenizer", train_tokenizer_task, [task], [num_bytes])
        self._report(f"trained the tokenizer on {len(sample):,} files, {num_bytes / MB:.1f} MB", start_s)
        return task.output

    def write_shards(self, corpus: Corpus, plan: ShardPlan, tokenizer_path: Path) -> list[WrittenShard]:
        """Write every tar to its final place; return their records."""
        start_s = time.monotonic()
        writer = PlanWriter(corpus)
        digests = writer.digests(plan)
        plan_path = self.work.path("plan", digests, "arrow")
        writer.write(plan_path, plan)
        tokenizer_sha256 = sha256_file(tokenizer_path)
        self._warn_of_tokenizer(tokenizer_path)
        tasks = []
        for number, (shard, digest) in enumerate(zip(plan.shards, digests, strict=True)):
            key = [shard.name, self.config.block_tokens, tokenizer_sha256, digest]
            tar = self.folder / "shards" / f"{shard.name}.tar"
            arguments = (shard.name, plan_path, number, tokenizer_path, self.config.block_tokens, tar)
            tasks.append(FileTask(shard.name, self.work.path(f"shard-{shard.name}", key, "json"), arguments))
        remove_stale_records(self.work.folder, self.folder / "shards", tasks)
        sizes_bytes = [shard.num_text_bytes for shard in plan.shards]
        self.work.run("tokenise and write shards", write_shard_task, tasks, sizes_bytes)
        written = [WrittenShard.model_validate_json(task.output.read_bytes()) for task in tasks]
        num_tokens = sum(sum(shard.document_tokens) for shard in written)
        self._report(f"wrote {len(written)} shards, {num_tokens / 1e6:.1f}M tokens", start_s)
        return written

    def _warn_of_tokenizer(self, tokenizer_path: Path) -> None:
        """Warn if the vocabulary is smaller than configured, or the fast encoder is not used."""
        tokenizer = CodeTokenizer.load(tokenizer_path)
        wanted = self.config.tokenizer.vocab_size
        if tokenizer.vocab_size < wanted:
            self.reporter.warn(
                f"prep: the sample gives a vocabulary of {tokenizer.vocab_size:,} tokens instead of {wanted:,}: "
                "raise prep.tokenizer.sample_bytes or add more code"
            )
        reason = tokenizer.fallback_reason
        if reason is not None:
            self.reporter.warn(f"prep: the fast encoder is not used, which only costs time: {reason}")

    def _report(self, fact: str, start_s: float) -> None:
        self.reporter.line(f"prep: {fact} in {time.monotonic() - start_s:.1f} s")


class _KeptFiles:
    """Makes the note of the progress bar: the number of files kept so far."""

    def __init__(self) -> None:
        self._num_kept = 0
        self._num_read = 0

    def __call__(self, output: Path) -> str:
        num_read, num_kept = count_rows(output)
        self._num_kept += num_kept
        self._num_read += num_read
        return f"{self._num_kept:,} of {self._num_read:,} files pass"


def _refuse_unreadable_sources(units: Sequence[WorkUnit], corpus: Corpus) -> None:
    sources, rules = corpus.strings("source"), corpus.strings("rule")
    num_by_rule: dict[str, Counter[str | None]] = {unit.source: Counter() for unit in units}
    for source, rule in zip(sources, rules, strict=True):
        num_by_rule.setdefault(source, Counter())[rule] += 1
    for source, counts in sorted(num_by_rule.items()):
        if not counts:
            raise UserError(f"source {source}: it has no file: point it at a corpus, or remove it")
        refuse_unreadable(source, counts)


def _rows_with_signature(corpus: Corpus, decisions: Decisions) -> tuple[NDArray[np.int64], list[DedupPart]]:
    """Return the kept rows that have a signature, part by part, and the same rows as rows of the parts."""
    kept = decisions.kept()
    is_signed = corpus.table.column("is_signed").to_numpy(zero_copy_only=False).astype(bool)
    rows = kept[is_signed[kept]]
    rows = rows[np.lexsort((corpus.row[rows], corpus.part[rows]))]
    starts = np.flatnonzero(np.diff(corpus.part[rows], prepend=-1))
    runs = np.split(rows, starts[1:]) if len(rows) else []
    return rows, [DedupPart(corpus.parts[corpus.part[run[0]]], corpus.row[run]) for run in runs]
