"""Clusters over parts agree with brute force, and do not depend on the division into tasks."""

import random
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.corpus.text_store import ReadFile, write_part
from data_prep.dedup import candidates
from data_prep.dedup import clusters as components
from data_prep.dedup import similarity as verification
from data_prep.dedup.candidates import bucket_pairs
from data_prep.dedup.catalogue import DedupPart
from data_prep.dedup.clusters import near_duplicate_clusters
from data_prep.dedup.config import NearDuplicatesConfig
from data_prep.dedup.signatures import signatures
from tests.unit.data_prep.dedup.serial_work import SerialWork

CONFIG = NearDuplicatesConfig()


def corpus(num_documents: int, seed: int = 3) -> list[bytes]:
    """Return random programs, half of them edited copies (and copies of copies) of earlier ones."""
    rng = random.Random(seed)
    documents: list[list[str]] = []
    for _ in range(num_documents):
        if documents and rng.random() < 0.5:
            words = list(rng.choice(documents))
            for _ in range(rng.randrange(len(words) // 15 + 2)):
                words[rng.randrange(len(words))] = f"new{rng.randrange(10**6)}"
        else:
            words = [f"w{rng.randrange(5000)}" for _ in range(rng.randrange(20, 400))]
        documents.append(words)
    return [" ".join(words).encode() for words in documents]


def parts_of(texts: list[bytes], folder: Path, num_parts: int) -> list[DedupPart]:
    """Write parts, each of which begins with a row that is not compared."""
    parts = []
    for number, chunk in enumerate(np.array_split(np.arange(len(texts)), num_parts)):
        path = folder / f"part-{number}.arrow"
        chosen = [texts[place] for place in chunk]
        rows = [ReadFile("r", "skipped.py", "", 1, "python", rule="line_length")]
        for text, signature in zip(chosen, signatures(chosen, CONFIG, None), strict=True):
            rows.append(ReadFile("r", "a.py", "", len(text), "python", bands=signature.bands, text=text))
        write_part(path, rows)
        parts.append(DedupPart(path, np.arange(1, len(chosen) + 1)))
    return parts


def brute_force_labels(texts: list[bytes], threshold: float) -> list[int]:
    sets = []
    for text in texts:
        words = re.findall(rb"\w+", text)
        sets.append({tuple(words[start : start + 5]) for start in range(len(words) - 4)})
    labels = list(range(len(texts)))
    for left, right in combinations(range(len(texts)), 2):
        common = len(sets[left] & sets[right])
        if common >= threshold * (len(sets[left]) + len(sets[right]) - common):
            old, new = sorted((labels[left], labels[right]), reverse=True)
            labels = [new if label == old else label for label in labels]
    return labels


def test_clusters_are_those_of_brute_force(tmp_path: Path) -> None:
    texts = corpus(250)
    labels = near_duplicate_clusters(parts_of(texts, tmp_path, 3), CONFIG, SerialWork(tmp_path / "work"))
    expected = brute_force_labels(texts, CONFIG.threshold)
    assert len(set(expected)) < 200  # else there was nothing to find
    assert np.mean(labels == expected) > 0.99
    # Verified pairs only: what is joined here is joined there.
    assert all(expected[label] == expected[document] for document, label in enumerate(labels))


def test_labels_depend_neither_on_the_division_into_tasks_nor_on_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = corpus(200)
    expected = near_duplicate_clusters(
        parts_of(texts, tmp_path, 1), CONFIG, SerialWork(tmp_path / "complete")
    )
    monkeypatch.setattr(candidates, "KEYS_PER_TASK", 500)
    monkeypatch.setattr(candidates, "KEYS_PER_STEP", 11)
    monkeypatch.setattr(verification, "PAIRS_PER_TASK", 7)
    monkeypatch.setattr(verification, "PAIRS_PER_STEP", 3)
    monkeypatch.setattr(verification, "BLOCK_DOCUMENTS", 3)
    monkeypatch.setattr(verification, "CACHE_BYTES", 10_000)
    monkeypatch.setattr(components.component_labels, "__defaults__", (5,))
    parts = parts_of(texts, tmp_path, 6)
    forwards = near_duplicate_clusters(parts, CONFIG, SerialWork(tmp_path / "forwards"))
    backwards = near_duplicate_clusters(parts, CONFIG, SerialWork(tmp_path / "backwards", backwards=True))
    assert np.array_equal(forwards, expected)
    assert np.array_equal(backwards, expected)
    made = [
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("forwards", "backwards")
    ]
    assert made[0] == made[1]
    assert len(made[0]) > 50


def test_no_task_runs_twice_and_other_rows_make_other_files(tmp_path: Path) -> None:
    parts, work = parts_of(corpus(40), tmp_path, 2), SerialWork(tmp_path / "work")
    near_duplicate_clusters(parts, CONFIG, work)
    made = _times(work.folder)
    near_duplicate_clusters(parts, CONFIG, work)
    again = _times(work.folder)
    # The driver writes the documents' rows again, as they have no task's checksum.
    assert [path.name.split("-")[1] for path in made if again[path] != made[path]] in ([], ["rows"])
    assert made.keys() == again.keys()
    fewer = [DedupPart(part.path, part.rows[1:]) for part in parts]
    assert len(near_duplicate_clusters(fewer, CONFIG, work)) == 38
    assert len(list(work.folder.iterdir())) == 2 * len(made)


def _times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_no_documents_and_one_document_are_fine(tmp_path: Path) -> None:
    work = SerialWork(tmp_path / "work")
    assert len(near_duplicate_clusters([], CONFIG, work)) == 0
    part = parts_of(corpus(1), tmp_path, 1)[0]
    empty = DedupPart(part.path, part.rows[:0])
    assert len(near_duplicate_clusters([empty], CONFIG, work)) == 0
    assert near_duplicate_clusters([empty, part, empty], CONFIG, work).tolist() == [0]


def test_equal_documents_are_one_cluster_however_many(tmp_path: Path) -> None:
    parts = parts_of([b"one two three four five six"] * 300, tmp_path, 4)
    labels = near_duplicate_clusters(parts, CONFIG, SerialWork(tmp_path / "work"))
    assert not np.any(labels)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 60), max_size=5))
def test_buckets_are_paired_fully_or_stay_connected_with_bounded_pairs(sizes: list[int]) -> None:
    keys = np.repeat(np.arange(len(sizes), dtype=np.uint64), sizes)
    documents = np.concatenate([np.arange(size, dtype=np.int64) * 10 for size in [0, *sizes]])
    offsets = np.cumsum([0, *sizes])
    documents = documents + keys.astype(np.int64)  # documents of different buckets differ
    made = set(zip(*(side.tolist() for side in bucket_pairs(keys, documents)), strict=True))
    for number, size in enumerate(sizes):
        members = documents[offsets[number] : offsets[number + 1]].tolist()
        of_bucket = {pair for pair in made if pair[0] in members}
        full = set(combinations(members, 2))
        assert of_bucket <= full
        if size <= 32:
            assert of_bucket == full
        else:
            assert len(of_bucket) <= 8 * size
            assert set(zip(members, members[1:], strict=False)) <= of_bucket
    assert len(made) == sum(len({p for p in made if p[0] % 10 == number}) for number in range(len(sizes)))


@settings(max_examples=100, deadline=None)
@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.floats(0.01, 1))
def test_similarity_is_the_jaccard_index(left: set[int], right: set[int], threshold: float) -> None:
    arrays = [np.array(sorted(side), np.uint64) for side in (left, right)]
    union = len(left | right)
    expected = len(left & right) >= threshold * union if union else True
    assert verification.is_similar(arrays[0], arrays[1], threshold) == expected
