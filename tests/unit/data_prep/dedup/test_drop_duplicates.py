"""The preferred copy of a file is kept."""

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from data_prep.corpus.decisions import decisions_after_reading
from data_prep.corpus.rows import Corpus, load_corpus
from data_prep.corpus.text_store import ReadFile, read_columns, write_part
from data_prep.dedup.drop_duplicates import drop_exact, drop_near, preference


def file(path: str, sha256: str, stars: int | None = None, rule: str | None = None) -> ReadFile:
    repository, _, name = path.partition("/")
    return ReadFile(
        repository, name, "", 1, "Python", id=path, sha256=sha256, stars=stars, rule=rule, num_text_bytes=1
    )


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Return a corpus of two parts whose rows are not in the ledger's order."""
    first = [file("b/2.py", "x"), file("b/1.py", "x", stars=7), file("a/1.py", "y"), file("c/3.py", "z")]
    second = [file("a/2.py", "x"), file("a/0.py", "y", rule="line_length"), file("d/1.py", "y")]
    write_part(tmp_path / "1.arrow", first)
    write_part(tmp_path / "2.arrow", second)
    return load_corpus([("s", tmp_path / "1.arrow"), ("s", tmp_path / "2.arrow")])


def test_rows_are_in_the_ledgers_order_with_their_place(corpus: Corpus) -> None:
    assert corpus.strings("id").tolist() == [
        "a/0.py",
        "a/1.py",
        "a/2.py",
        "b/1.py",
        "b/2.py",
        "c/3.py",
        "d/1.py",
    ]
    assert corpus.part.tolist() == [1, 0, 1, 0, 0, 0, 1]
    assert corpus.row.tolist() == [1, 2, 0, 1, 0, 3, 2]


def test_of_equal_texts_the_one_with_most_stars_is_kept_then_the_first(corpus: Corpus) -> None:
    decisions = decisions_after_reading(corpus)
    drop_exact(corpus, decisions, preference(corpus))
    ids = corpus.strings("id")
    assert ids[decisions.kept()].tolist() == ["a/1.py", "b/1.py", "c/3.py"]
    repeated = {ids[row]: ids[kept] for row, kept in enumerate(decisions.duplicate_of) if kept >= 0}
    assert repeated == {"a/2.py": "b/1.py", "b/2.py": "b/1.py", "d/1.py": "a/1.py"}
    assert decisions.rule[0] == "line_length"


def test_one_of_each_near_duplicate_cluster_is_kept(corpus: Corpus) -> None:
    decisions = decisions_after_reading(corpus)
    rows = np.array([1, 2, 3, 4, 5])
    drop_near(decisions, rows, np.array([0, 1, 0, 0, 4]), preference(corpus))
    assert decisions.kept().tolist() == [2, 3, 5, 6]
    assert decisions.duplicate_of.tolist() == [-1, 3, -1, -1, 3, -1, -1]
    assert decisions.cluster.tolist() == [-1, 3, -1, 3, 3, -1, -1]
    assert decisions.value[[1, 4]].tolist() == [3.0, 3.0]


def test_the_columns_of_a_part_are_copies(tmp_path: Path) -> None:
    path = tmp_path / "large.arrow"
    write_part(path, [ReadFile("r", f"{i}.py", "", 1, "Python", text=b"x" * 100_000) for i in range(100)])
    allocated = pa.total_allocated_bytes()
    columns = read_columns(path)
    assert columns.num_rows == 100
    assert pa.total_allocated_bytes() - allocated < 200_000
    # Arrow reads in its own threads, and the last of them may still hold the file when the table is there.
    deadline_s = time.monotonic() + 10
    while "large.arrow" in Path("/proc/self/maps").read_text() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert "large.arrow" not in Path("/proc/self/maps").read_text()
