"""Search for texts in prepared corpora, by the rule that keeps evaluation sets out.

The rule counts only n-grams that few texts share. For documents that contain a text by the rule, the reported share is
that of all n-grams of the text. A document with all n-grams always contains the text by the rule, so none is missed.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster.file_tasks import FileTask, run_file_tasks
from cluster.reporter import Reporter
from cluster.storage import read_document, sha256_bytes, write_bytes, write_document
from data_prep.decontamination.config import MATCH_RULE
from data_prep.decontamination.index import index_of, load_index
from data_prep.decontamination.items import as_searched
from data_prep.finished.prepared import BlockEntry, PreparedCorpus, open_prepared
from data_prep.sources.units import UNIT_BYTES
from data_prep.text.shingles import Words, hash_words, polynomials

_SPLIT = "train"
TASK_BYTES = 4 * UNIT_BYTES
# Texts of about this total size are hashed at once, so that their arrays stay in a core's cache.
_GROUP_BYTES = 1 << 18
MOST_BYTES = 16 << 30
"""Of larger corpora, random blocks of this total size are searched: about a quarter of an hour on one core."""


@dataclass(frozen=True)
class Found:
    """The result of a search.

    `share_T` [num_texts] is, over the documents that contain a text (`MatchRule`), the largest share of
    its different word n-grams in one document: NaN if the text is too short, 0 if no document contains it, 1 if one
    has all. N-grams have `ngram_words` words, or `min_text_words` for texts with fewer. `searched_share` is the share
    of the corpora's text that was searched.
    """

    share_T: NDArray[np.float64]
    searched_share: float


class TextNgrams:
    """The different n-grams of texts given as word hashes, computed on demand."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._known: dict[int, NDArray[np.uint64]] = {}

    def of(self, text: int) -> NDArray[np.uint64]:
        """Return the different n-grams of a text, sorted."""
        if text not in self._known:
            self._known[text] = _ngrams_of(self._words, text, self.length(text))
        return self._known[text]

    def length(self, text: int) -> int:
        """Return the number of words per n-gram of a text."""
        offsets = self._words.offsets
        is_long = offsets[text + 1] - offsets[text] >= MATCH_RULE.ngram_words
        return MATCH_RULE.ngram_words if is_long else MATCH_RULE.min_text_words


def search_corpora(texts: Sequence[str], locations: Sequence[str], folder: Path, reporter: Reporter) -> Found:
    """Search for the texts in the train splits of the prepared corpora at `locations`, in tasks on Ray.

    Results of finished tasks are in `folder`, and a killed call resumes from them. UserError for a corpus that cannot
    be read.
    """
    words = [hash_words([as_searched(text)]).hashes for text in texts]
    places: dict[bytes, list[int]] = {}
    for number, hashes in enumerate(words):
        if len(hashes) >= MATCH_RULE.min_text_words:
            places.setdefault(hashes.tobytes(), []).append(number)
    share_T = np.full(len(texts), np.nan)
    firsts = [numbers[0] for numbers in places.values()]
    share_T[[number for numbers in places.values() for number in numbers]] = 0.0
    if not firsts:
        return Found(share_T, 1.0)
    index = index_of([str(number) for number in range(len(firsts))], [words[n] for n in firsts], MATCH_RULE)
    index_path = folder / f"texts-{sha256_bytes(index)[:16]}.npz"
    write_bytes(index_path, index)
    words_path = folder / index_path.name.replace("texts", "words")
    write_bytes(words_path, _serialize_words([words[number] for number in firsts]))
    corpora = [open_prepared(location) for location in locations]
    tasks, num_bytes, searched_share = _tasks(corpora, (index_path, words_path), folder)
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


def search_task(location: str, entries: Sequence[BlockEntry], paths: tuple[Path, Path], output: Path) -> None:
    """Task: write, for every text that a document of the blocks contains, the largest share in one document.

    `paths` are those of the texts' index and of their words.
    """
    index, texts = load_index(paths[0]), _load_words(paths[1])
    best: dict[str, float] = {}
    for group in _documents(open_prepared(location), entries):
        words = hash_words(group)
        document_ngrams: dict[tuple[int, int], NDArray[np.uint64]] = {}
        for hit in index.hits(words):
            name, share = index.names[hit.text], hit.share
            if best.get(name) == 1:
                continue
            ngrams = texts.of(hit.text)
            if index.num_counted(hit.text) < len(ngrams):
                key = hit.document, texts.length(hit.text)
                if key not in document_ngrams:
                    document_ngrams[key] = _ngrams_of(words, *key)
                share = float(np.isin(ngrams, document_ngrams[key], assume_unique=True).mean())
            best[name] = max(best.get(name, 0.0), share)
    write_document(output, {"shares": best})


def _ngrams_of(words: Words, number: int, ngram_words: int) -> NDArray[np.uint64]:
    first, end = words.offsets[number : number + 2]
    return np.unique(polynomials(words.hashes[first:end], ngram_words))


def _serialize_words(words: Sequence[NDArray[np.uint64]]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, hashes=np.concatenate(words), offsets=np.cumsum([0, *map(len, words)]))
    return buffer.getvalue()


@lru_cache(maxsize=2)
def _load_words(path: Path) -> TextNgrams:
    with np.load(path) as arrays:
        return TextNgrams(Words(arrays["hashes"], arrays["offsets"]))


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
    corpora: Sequence[PreparedCorpus], paths: tuple[Path, Path], folder: Path
) -> tuple[list[FileTask], int, float]:
    """Return the tasks, the bytes of text that they search, and the share of all text."""
    blocks = [(corpus, entry) for corpus in corpora for entry in corpus.blocks(_SPLIT)]
    sizes_bytes = np.array([entry.num_text_bytes for _, entry in blocks], np.int64)
    order = np.random.default_rng(0).permutation(len(blocks))
    drawn = np.sort(order[np.cumsum(sizes_bytes[order]) - sizes_bytes[order] < MOST_BYTES])
    runs: list[tuple[PreparedCorpus, list[BlockEntry]]] = []
    for number in drawn.tolist():
        corpus, entry = blocks[number]
        if not runs or runs[-1][0] is not corpus or sum(e.num_text_bytes for e in runs[-1][1]) >= TASK_BYTES:
            runs.append((corpus, []))
        runs[-1][1].append(entry)
    tasks = []
    for corpus, entries in runs:
        name = f"{corpus.manifest_sha256} {entries[0].key} {paths[1].name}"
        output = folder / f"found-{sha256_bytes(name.encode())[:16]}.json"
        tasks.append(FileTask(f"search {entries[0].shard}", output, (corpus.location, entries, paths)))
    searched, total = int(sizes_bytes[drawn].sum()), int(sizes_bytes.sum())
    return tasks, searched, searched / total if total else 1.0
