"""Which of some texts stand in corpora that are prepared already, by the rule that keeps evaluation sets out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster.ray_session import FileTask, run_file_tasks
from cluster.reporter import Reporter
from cluster.storage import read_document, sha256_bytes, write_bytes, write_document
from data_prep.decontamination.config import DecontaminationConfig
from data_prep.decontamination.index import index_of, load_index
from data_prep.decontamination.items import as_searched
from data_prep.dedup.words import hash_words
from data_prep.prepared import BlockEntry, PreparedCorpus, open_prepared
from data_prep.sources.units import UNIT_BYTES

_SPLIT = "train"
_TASK_BYTES = 4 * UNIT_BYTES
# Hashed at once: their arrays stay in a core's cache.
_GROUP_BYTES = 1 << 18
MOST_BYTES = 16 << 30
"""Of larger corpora as many are searched, in blocks drawn at random: about a quarter of an hour on one core."""


@dataclass(frozen=True)
class Found:
    """Per text the largest share of its word n-grams that one document holds: NaN where the text is too short to
    tell, 0 where no document contains it (`DecontaminationConfig`), 1 where one has all of it.

    `searched_share` is the part of the corpora's text that was searched.
    """

    share_T: NDArray[np.float64]
    searched_share: float


def search_corpora(texts: Sequence[str], locations: Sequence[str], folder: Path, reporter: Reporter) -> Found:
    """Look for the texts in the train splits of the prepared corpora at `locations`, as tasks on Ray.

    What a killed call has found lies in `folder`, and the same call goes on from there. UserError for a corpus that
    cannot be read.
    """
    config = DecontaminationConfig()
    words = [hash_words([as_searched(text)]).hashes for text in texts]
    places: dict[bytes, list[int]] = {}
    for number, hashes in enumerate(words):
        if len(hashes) >= config.min_text_words:
            places.setdefault(hashes.tobytes(), []).append(number)
    share_T = np.full(len(texts), np.nan)
    firsts = [numbers[0] for numbers in places.values()]
    share_T[[number for numbers in places.values() for number in numbers]] = 0.0
    if not firsts:
        return Found(share_T, 1.0)
    index = index_of([str(number) for number in range(len(firsts))], [words[n] for n in firsts], config)
    index_path = folder / f"texts-{sha256_bytes(index)[:16]}.npz"
    write_bytes(index_path, index)
    corpora = [open_prepared(location) for location in locations]
    tasks, num_bytes, searched_share = _tasks(corpora, index_path, folder)
    with reporter.bar("search the pretraining corpus", total=num_bytes / 1e6, unit="MB") as bar:
        done_mb = 0.0

        def on_done(task: FileTask) -> None:
            nonlocal done_mb
            done_mb += sum(entry.num_text_bytes for entry in task.arguments[1]) / 1e6
            bar.update(done_mb)

        run_file_tasks(search_task, tasks, on_done, on_retry=reporter.line)
    groups = list(places.values())
    for task in tasks:
        for name, share in read_document(task.output)["shares"].items():
            share_T[groups[int(name)]] = np.maximum(share_T[groups[int(name)]], share)
    return Found(share_T, searched_share)


def search_task(location: str, entries: Sequence[BlockEntry], index_path: Path, output: Path) -> None:
    """Write the largest share of every text of the index that a document of the blocks contains."""
    index = load_index(index_path)
    best: dict[str, float] = {}
    for group in _documents(open_prepared(location), entries):
        for hit in index.hits(hash_words(group)):
            name = index.names[hit.text]
            best[name] = max(best.get(name, 0.0), hit.share)
    write_document(output, {"shares": best})


def _documents(corpus: PreparedCorpus, entries: Sequence[BlockEntry]) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    for entry in entries:
        block = corpus.read_block(entry)
        for number in range(len(block.doc_starts)):
            group.append(corpus.tokenizer.decode_bytes(block.document_tokens(number)))
            if sum(map(len, group)) >= _GROUP_BYTES:
                yield group
                group = []
    if group:
        yield group


def _tasks(
    corpora: Sequence[PreparedCorpus], index_path: Path, folder: Path
) -> tuple[list[FileTask], int, float]:
    """The tasks, the bytes of text that they search, and the share of all."""
    blocks = [(corpus, entry) for corpus in corpora for entry in corpus.blocks(_SPLIT)]
    sizes_bytes = np.array([entry.num_text_bytes for _, entry in blocks], np.int64)
    order = np.random.default_rng(0).permutation(len(blocks))
    drawn = np.sort(order[np.cumsum(sizes_bytes[order]) - sizes_bytes[order] < MOST_BYTES])
    runs: list[tuple[PreparedCorpus, list[BlockEntry]]] = []
    for number in drawn.tolist():
        corpus, entry = blocks[number]
        if not runs or runs[-1][0] is not corpus or _num_bytes(runs[-1][1]) >= _TASK_BYTES:
            runs.append((corpus, []))
        runs[-1][1].append(entry)
    tasks = []
    for corpus, entries in runs:
        name = f"{corpus.manifest_sha256} {entries[0].key} {index_path.name}"
        output = folder / f"found-{sha256_bytes(name.encode())[:16]}.json"
        tasks.append(FileTask(f"search {entries[0].shard}", output, (corpus.location, entries, index_path)))
    searched, total = int(sizes_bytes[drawn].sum()), int(sizes_bytes.sum())
    return tasks, searched, searched / total if total else 1.0


def _num_bytes(entries: Sequence[BlockEntry]) -> int:
    return sum(entry.num_text_bytes for entry in entries)
