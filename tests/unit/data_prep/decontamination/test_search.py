"""Search for texts in prepared corpora."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import UserError
from cluster.file_tasks import FileTask
from cluster.reporter import Reporter
from data_prep.decontamination import search as module
from data_prep.decontamination.search import search_corpora
from tests.example_corpus import write_corpus

_FUNCTION = """def total(prices, tax):
    result = 0
    for price in prices:
        result += price * (1 + tax)
    return result
"""
_SHORT = "def double(value): return value * two + shift(value, by_one)\n"
_HELD_OUT = (
    "class Held:\n    def out(self, of, training, on, purpose):\n        return self.out(of, training, on)\n"
)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the tasks that ran, in this process and one after the other."""
    names: list[str] = []

    def run(
        function: Callable[..., None],
        tasks: Sequence[FileTask],
        on_done: Callable[[FileTask], None],
        **_: Any,
    ) -> None:
        for task in tasks:
            if not task.output.exists():
                function(*task.arguments, task.output)
                names.append(task.name)
            on_done(task)

    monkeypatch.setattr(module, "run_file_tasks", run)
    return names


@pytest.fixture
def prep(tmp_path: Path) -> Path:
    filler = {f"f{number}.py": f"x_{number} = {number}\n" * 20 for number in range(6)}
    splits = {
        "train": {"a": {**filler, "a.py": "import os\n\n\n" + _FUNCTION + _SHORT}},
        "test": {"b": {"b.py": _HELD_OUT}},
    }
    return write_corpus(tmp_path / "prep", splits, block_docs=2).folder


def _shares(texts: Sequence[str], prep: Path, folder: Path) -> list[float]:
    return search_corpora(texts, [str(prep)], folder, Reporter()).share_T.tolist()


def test_complete_texts_are_found_whatever_their_white_space_and_punctuation(
    prep: Path, tmp_path: Path, ran: list[str]
) -> None:
    spaced = " ".join(_FUNCTION.replace("(", " ( ").replace(")", " ) ").split())
    half = _FUNCTION.replace("return result", "print(done)")
    shares = _shares(
        [_FUNCTION, spaced, _SHORT, half, _HELD_OUT, "x = 1", _FUNCTION], prep, tmp_path / "work"
    )
    assert shares[:3] == [1.0, 1.0, 1.0]
    assert 0.5 <= shares[3] < 1
    assert shares[4] == 0, "held out of training"
    assert np.isnan(shares[5]), "too short to search for"
    assert shares[6] == 1.0


_HEAD = [f"common{number}" for number in range(60)]
_OF_A_HEAD = [" ".join([*_HEAD, *(f"own{text}_{number}" for number in range(4))]) for text in range(12)]


def test_n_grams_that_many_texts_share_count_too(tmp_path: Path, ran: list[str]) -> None:
    tail = " ".join(_OF_A_HEAD[0].split()[-13:])
    short = [f"a b c d e f g h end{text}" for text in range(12)]
    files = [tail, _OF_A_HEAD[1], " ".join(_HEAD), "b c d e f g h end0", short[1]]
    corpus = {"train": {"a": {f"{number}.py": text for number, text in enumerate(files)}}}
    prep = write_corpus(tmp_path / "prep", corpus).folder
    shares = _shares([*_OF_A_HEAD, *short], prep, tmp_path / "work")
    assert shares[0] == pytest.approx(4 / 55), "it has all that no other text shares"
    assert shares[1] == 1.0
    assert not any(shares[2:12])
    assert shares[12:14] == [0.5, 1.0], "of fewer than ten words n-grams of eight are looked for"
    assert not any(shares[14:])


def test_of_several_documents_the_one_with_most_of_a_text_counts(tmp_path: Path, ran: list[str]) -> None:
    words = _OF_A_HEAD[0].split()
    parts = {f"{first}.py": " ".join(words[first:]) for first in (51, 20, 40)}
    prep = write_corpus(tmp_path / "prep", {"train": {"a": parts}}).folder
    assert _shares(_OF_A_HEAD, prep, tmp_path / "work")[0] == pytest.approx(35 / 55)


def test_texts_across_two_files_are_not_in_one(tmp_path: Path, ran: list[str]) -> None:
    head, tail = _FUNCTION[:60], _FUNCTION[60:]
    prep = write_corpus(tmp_path / "prep", {"train": {"a": {"a.py": head, "b.py": tail}}}).folder
    assert _shares([_FUNCTION], prep, tmp_path / "work")[0] < 1


def test_a_killed_search_resumes(
    prep: Path, tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TASK_BYTES", 1)
    first = _shares([_FUNCTION], prep, tmp_path / "work")
    num_tasks = len(ran)
    assert num_tasks == 4
    next((tmp_path / "work").glob("found-*")).unlink()
    assert _shares([_FUNCTION], prep, tmp_path / "work") == first == [1.0]
    assert len(ran) == num_tasks + 1
    assert _shares([_SHORT], prep, tmp_path / "work") == [1.0], "other texts are searched again"
    assert len(ran) == 2 * num_tasks + 1


def test_of_several_corpora_the_largest_share_counts(prep: Path, tmp_path: Path, ran: list[str]) -> None:
    other = write_corpus(tmp_path / "other", {"train": {"c": {"c.py": _HELD_OUT}}}).folder
    found = search_corpora([_FUNCTION, _HELD_OUT], [str(prep), str(other)], tmp_path / "work", Reporter())
    assert found.share_T.tolist() == [1.0, 1.0]
    assert found.searched_share == 1


def test_of_large_corpora_a_part_is_searched_and_its_share_reported(
    prep: Path, tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 400)
    found = search_corpora([_FUNCTION], [str(prep)], tmp_path / "work", Reporter())
    assert 0 < found.searched_share < 1


def test_a_damaged_corpus_is_named(prep: Path, tmp_path: Path, ran: list[str]) -> None:
    (tar,) = (prep / "shards").glob("train*.tar")
    tar.write_bytes(tar.read_bytes().replace(b"a.py", b"b.py"))
    with pytest.raises(UserError, match="train-00000"):
        _shares([_FUNCTION], prep, tmp_path / "work")
