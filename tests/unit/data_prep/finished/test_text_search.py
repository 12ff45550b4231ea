"""The documents that contain a text, against a search of the texts themselves."""

from pathlib import Path

import pytest

from data_prep.finished.prepared import PreparedCorpus
from data_prep.finished.text_search import find_text
from tests.example_corpus import write_corpus

FILES = {
    "alpha": {"a.py": "x = 1\ny = 2\n", "b.py": "# ä y = 2\ny = 2\n"},
    "beta": {"c.py": "total = 0\n", "d.py": "end", "e.py": "y = 2"},
}
SPLITS = {"train": FILES, "validation": {"gamma": {"f.py": "def f():\n    return y = 2\n"}}}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    folder: Path = tmp_path_factory.mktemp("corpus")
    return write_corpus(folder, dict(reversed(SPLITS.items())), block_docs=2)


@pytest.mark.parametrize(
    "text", ["y = 2", "x = 1\ny", "ä", "= 0\n", "return", "none of them", "0\nend", "e", "\n"]
)
def test_it_finds_what_a_search_of_the_texts_finds(corpus: PreparedCorpus, text: str) -> None:
    expected = [
        (split, path, content.count(text), content[: content.index(text)].count("\n") + 1)
        for split, packages in SPLITS.items()
        for files in packages.values()
        for path, content in files.items()
        if text in content
    ]
    found = find_text(corpus, text.encode(), 100)
    assert [(one.split, one.meta.path, one.num_places, one.first.line) for one in found.documents] == expected
    assert (found.num_searched, found.num_documents, found.is_all) == (6, 6, True)


def test_the_place_is_that_of_the_first_character(corpus: PreparedCorpus) -> None:
    (found,) = find_text(corpus, b"y = 2\ny", 100).documents
    assert (found.first.line, found.first.column, found.first.text) == (1, 5, "# ä y = 2")


def test_it_stops_at_the_most_and_says_so(corpus: PreparedCorpus) -> None:
    found = find_text(corpus, b"y = 2", 1)
    assert [one.meta.path for one in found.documents] == ["a.py"]
    assert (found.num_searched, found.is_all) == (1, False)
    assert find_text(corpus, b"y = 2", 4).is_all


def test_it_stops_when_it_must(corpus: PreparedCorpus) -> None:
    asked = iter([False, True])
    found = find_text(corpus, b"y = 2", 100, must_stop=lambda: next(asked))
    assert [one.meta.path for one in found.documents] == ["a.py", "b.py"]
    assert (found.num_searched, found.is_all) == (2, False)
