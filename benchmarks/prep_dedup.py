"""Measure recall and precision of near-duplicate removal on real files, against brute force.

    python -m benchmarks.prep_dedup [--max-mb 120] [ROOT ...]

Roots are as in `prep_corpus`; folders with several versions of the same packages give many near-duplicates. Brute force
shares no code with the product: words by a regular expression, n-grams as tuples in Python sets, and the exact Jaccard
similarity of every pair that can reach 0.7. Such a pair of sets must share one of the rarest n-grams of both (prefix
filter: Chaudhuri, Ganti, Kaushik 2006), so skipping all other pairs loses none. Rates are per CPU second.
"""

import argparse
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.prep_corpus import choose, default_roots
from cluster.file_tasks import FileTask
from cluster.reporter import Reporter
from data_prep.corpus.text_store import ReadFile, write_part
from data_prep.corpus.work import Work
from data_prep.dedup import pairs
from data_prep.dedup.catalogue import DedupPart
from data_prep.dedup.clusters import near_duplicate_clusters
from data_prep.dedup.config import NGRAM_WORDS, NUM_BANDS, NearDuplicatesConfig
from data_prep.dedup.signatures import signatures

_FILES_PER_PART = 1000
_WORD = re.compile(rb"[A-Za-z0-9_\x80-\xff]{1,64}")
_THRESHOLDS = (0.8, 0.7)
Pair = tuple[int, int]


class _InProcess(Work):
    """Runs tasks one after the other in this process, so that its CPU time is the whole cost."""

    def run(
        self,
        label: str,
        function: Callable[..., None],
        tasks: Sequence[FileTask],
        sizes_bytes: Sequence[int],
        note: Callable[[Path], str] = lambda output: "",
    ) -> None:
        start_s = time.process_time()
        for task in tasks:
            function(*task.arguments, task.output)
        print(f"  {label}: {len(tasks)} tasks, {time.process_time() - start_s:.2f} s", flush=True)


def brute_force(texts: Sequence[bytes], ngram_words: int, threshold: float) -> dict[Pair, float]:
    """Return every pair with a similarity of at least `threshold`, and its similarity."""
    sets: list[set[tuple[bytes, ...]]] = []
    for text in texts:
        words = _WORD.findall(text)
        sets.append({tuple(words[i : i + ngram_words]) for i in range(len(words) - ngram_words + 1)})
    frequency = Counter(ngram for ngrams in sets for ngram in ngrams)
    holders: defaultdict[tuple[bytes, ...], list[int]] = defaultdict(list)
    found: dict[Pair, float] = {}
    for document, ngrams in enumerate(sets):
        rare_first = sorted(ngrams, key=lambda ngram: (frequency[ngram], ngram))
        # If two sets are this similar, they have at least threshold x size members in common, for the size of either.
        prefix = rare_first[: len(ngrams) - int(threshold * len(ngrams) * (1 - 1e-9)) + 1]
        for other in {holder for ngram in prefix for holder in holders[ngram]}:
            smaller, larger = sorted((len(ngrams), len(sets[other])))
            if smaller < threshold * larger:
                continue
            common = len(ngrams & sets[other])
            similarity = common / (smaller + larger - common)
            if similarity >= threshold:
                found[other, document] = similarity
        for ngram in prefix:
            holders[ngram].append(document)
    return found


def component_labels(num_documents: int, edges: Sequence[Pair]) -> list[int]:
    """Return for each document the smallest document of its cluster, by merging lists."""
    labels = list(range(num_documents))
    members = [[document] for document in range(num_documents)]
    for left, right in edges:
        low, high = sorted((labels[left], labels[right]))
        if low != high:
            for document in members[high]:
                labels[document] = low
            members[low] += members[high]
    return labels


def product_labels(
    texts: Sequence[bytes], config: NearDuplicatesConfig, folder: Path
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return the product's label of every text (its own number if it has no n-gram), and all band keys."""
    total_bytes = sum(map(len, texts))
    start_s = time.process_time()
    made = signatures(texts, config, None)
    cpu_s = time.process_time() - start_s
    print(f"  signatures: {total_bytes / 1e6 / cpu_s:.0f} MB/s", flush=True)
    parts, compared = [], []
    for first in range(0, len(texts), _FILES_PER_PART):
        numbers = range(first, min(first + _FILES_PER_PART, len(texts)))
        path = folder / f"part-{first}.arrow"
        write_part(
            path, (ReadFile("r", str(n), "", 0, "", bands=made[n].bands, text=texts[n]) for n in numbers)
        )
        rows = np.array([n - first for n in numbers if made[n].bands is not None], np.int64)
        parts.append(DedupPart(path, rows))
        compared.append(rows + first)
    documents = np.concatenate(compared)
    labels = np.arange(len(texts))
    labels[documents] = documents[near_duplicate_clusters(parts, config, _InProcess(folder, Reporter(), 1))]
    keys = np.zeros((len(texts), NUM_BANDS), np.uint64)
    keys[documents] = np.stack([np.frombuffer(made[n].bands or b"", np.uint64) for n in documents])
    return labels, keys


def verified_edges(folder: Path, documents: NDArray[np.int64]) -> list[Pair]:
    """Return the pairs that the product accepted, as numbers of texts."""
    edges: list[Pair] = []
    for path in sorted(folder.glob("near-verified-*.npy")):
        left, right = pairs.decode(np.load(path), len(documents))
        edges += zip(documents[left].tolist(), documents[right].tolist(), strict=True)
    return edges


def report(texts: Sequence[bytes], config: NearDuplicatesConfig) -> None:
    """Compare the product with brute force and print the result."""
    print("product:", flush=True)
    with tempfile.TemporaryDirectory() as name:
        labels, keys = product_labels(texts, config, Path(name))
        documents = np.flatnonzero(keys.any(axis=1))
        edges = verified_edges(Path(name), documents)
    start_s = time.process_time()
    truth = brute_force(texts, NGRAM_WORDS, config.threshold)
    print(
        f"brute force: {len(truth):,} pairs from {config.threshold} on, {time.process_time() - start_s:.0f} s"
    )
    for threshold in _THRESHOLDS:
        similar = [pair for pair, similarity in truth.items() if similarity >= threshold]
        joined = sum(labels[left] == labels[right] for left, right in similar)
        met = sum(bool((keys[left] == keys[right]).any()) for left, right in similar)
        print(
            f"  pairs >= {threshold}: {len(similar):,}; in one cluster {joined / len(similar):.4%},"
            f" share a band {met / len(similar):.4%}"
        )
    right_edges = sum(pair in truth for pair in edges)
    print(
        f"  accepted pairs (forest): {len(edges):,}; precision at {config.threshold}: {right_edges / len(edges):.4%}"
    )
    expected = np.array(component_labels(len(texts), list(truth)))
    dropped, dropped_there = labels != np.arange(len(labels)), expected != np.arange(len(labels))
    print(
        f"  files with the same cluster label: {(labels == expected).mean():.4%}; not first of their cluster:"
        f" {dropped.sum():,}, by brute force {dropped_there.sum():,}, both {(dropped & dropped_there).sum():,}"
    )
    sizes = np.bincount(labels)
    within = sum(int(size) * (int(size) - 1) // 2 for size in sizes)
    joined = sum(labels[left] == labels[right] for left, right in truth)
    print(
        f"  pairs in one cluster: {within:,}, of them {within - joined:,} only through others;"
        f" largest cluster {sizes.max()}"
    )


def main() -> None:
    """Gather files and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("roots", type=Path, nargs="*")
    parser.add_argument("--max-mb", type=float, default=120)
    arguments = parser.parse_args()
    files = choose(arguments.roots or default_roots(), int(arguments.max_mb * 1e6))
    texts = [file.origin.read_bytes() for file in files]
    print(f"{len(texts):,} files, no two equal, {sum(map(len, texts)) / 1e6:.1f} MB", flush=True)
    report(texts, NearDuplicatesConfig())


if __name__ == "__main__":
    main()
