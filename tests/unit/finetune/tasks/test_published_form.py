"""Line completion learnt in the form of the published sets, Python's and Java's."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from finetune.modalities.base import Source
from finetune.modalities.writing import WritingData
from finetune.tasks.line_completion import LineCompletion, LineCompletionConfig
from tests.example_corpus import write_corpus

_CLASS = """package a.b;

import java.util.List;

/** Doc; of %(name)s. */
public class %(name)s {
    private final List<List<String>> names; // why
    char first = 'a', other = '\\n';

    String at(int number) { return names.get(number + %(number)d).get(0) + "none, %(name)s"; }
}
"""
_PYTHON = {"input": "<s> x = <NUM_LIT:0> <EOL> y", "gt": "= x"}
_JAVA = {"input": "<s> class A { int x", "gt": "= <NUM_LIT:0> ;"}


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Source:
    splits = {"train": range(2), "validation": range(2, 12), "test": range(12, 15)}
    corpus = write_corpus(
        tmp_path_factory.mktemp("java"),
        {
            split: {
                f"p{number}": {f"N{number}.java": _CLASS % {"name": f"N{number}", "number": number}}
                for number in numbers
            }
            for split, numbers in splits.items()
        },
    )
    return Source(prep=corpus.folder, seed=3)


def _task(folder: Path, items: list[dict[str, str]], **fields: Any) -> LineCompletion:
    """Judged by these items."""
    (folder / "dev.json").write_text("".join(json.dumps(item) + "\n" for item in items))
    (folder / "literals.json").write_text('{"str": ["\\\\n"], "num": ["0"], "char": ["a"]}')
    config = {"folder": folder, "literals": folder / "literals.json", **fields}
    return LineCompletion(LineCompletionConfig.model_validate(config))


def _texts(data: WritingData) -> list[str]:
    return [f"{pair.source} {pair.references[0]}" for pair in (*data.train, *data.valid)]


def test_java_is_learnt_as_java_is_published(tmp_path: Path, java: Source) -> None:
    task = _task(tmp_path, [_JAVA], language="java", max_train=60)
    data = task.load(java)
    assert (len(data.train), len(data.test)) == (60, 1)
    assert data.valid
    assert data == task.load(java)
    for pair in (*data.train, *data.valid):
        before, written = pair.source.split(" "), pair.references[0].split(" ")
        assert before[0] == "<s>"
        assert len(before) >= 10
        assert written[-1] in (";", "}")
        assert not {";", "}"} & set(written[:-1])
        assert len(written) > 1
    whole = " ".join(_texts(data))
    for part in (
        "<s> package a . b ; import java . util . List ; public class N",
        "List < List < String > > names ; char first = '<CHAR_LIT:a>' , other = '<STR_LIT:\\n>' ; String at ( int",
        '. get ( number + <NUM_LIT> ) . get ( <NUM_LIT:0> ) + "<STR_LIT>"',
    ):
        assert part in whole
    assert "why" not in whole
    assert "Doc" not in whole
    assert "<EOL>" not in whole


def test_python_is_learnt_as_python_is_published(tmp_path: Path, corpus: PreparedCorpus) -> None:
    task = _task(tmp_path, [_PYTHON], max_train=20)
    data = task.load(Source(prep=corpus.folder, seed=3))
    assert len(data.train) == 20
    assert any("<EOL>" in pair.source for pair in data.train)
    assert not any("<EOL>" in pair.references[0] for pair in data.train)


@pytest.mark.parametrize(
    ("item", "language", "reported"),
    [
        (
            _JAVA,
            "Go",
            r"^task.literals: CodeXGLUE's .* items in Go: set task.language, or .* \(task.train\)$",
        ),
        (
            _JAVA,
            "Python",
            r"dev.json: its items are Java .* but task.language is Python: set task.language=Java",
        ),
        (
            _PYTHON,
            "Java",
            r"dev.json: its items are Python .* task.language is Java: set task.language=Python",
        ),
        ({**_JAVA, "gt": ""}, "Java", r"dev.json: 1 of 1 items \(first test-1\) .* its labels are withheld"),
    ],
)
def test_a_form_that_is_lacking_or_another_one_is_reported_in_one_line(
    tmp_path: Path, java: Source, item: dict[str, str], language: str, reported: str
) -> None:
    with pytest.raises(UserError, match=reported) as caught:
        _task(tmp_path, [item], language=language).load(java)
    assert "\n" not in str(caught.value)


def test_a_corpus_without_the_language_is_reported_in_one_line(
    tmp_path: Path, corpus: PreparedCorpus
) -> None:
    with pytest.raises(UserError, match="has no Java document .*: use a larger corpus"):
        _task(tmp_path, [_JAVA], language="Java").load(Source(prep=corpus.folder, seed=3))


def test_without_literals_or_a_corpus_any_language_is_read(tmp_path: Path, java: Source) -> None:
    assert _task(tmp_path, [_JAVA], language="Go", literals=None).load(java).train == []
    assert _task(tmp_path, [_JAVA], language="Go").load(Source(prep=None, seed=3)).train == []
