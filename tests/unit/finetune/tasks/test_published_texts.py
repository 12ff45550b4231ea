"""The texts that a corpus is searched for: those a task has changed are searched as they are in its files."""

import json
from pathlib import Path
from typing import Any

import pytest

from finetune.experiment.config import ExperimentConfig
from finetune.experiment.overlap import searched_texts
from finetune.modalities.base import Source
from finetune.tasks.published import Published, whole_words
from tests.task_data import TASK_DATA, needs_task_data

_FUNCTION = 'def total(prices):\n    """Adds the prices."""\n    result = 0\n    return sum(prices, result)\n'
_METHOD = "int total ( int [ ] prices ) { int result = 0 ; return result ; }"


def _load(task: dict[str, Any], system: str) -> Any:
    config = ExperimentConfig.model_validate({"task": task, "systems": {"one": {"kind": system}}})
    return config.task.build().load(Source(None, 0))


def _texts(data: Any, role: str) -> set[str]:
    return {one.text for one in searched_texts(data.test, data.published) if one.role == role}


def _records(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("\n".join(map(json.dumps, records)))


def test_only_what_was_changed_is_remembered() -> None:
    published = Published()
    assert published.note("a", "a") == "a"
    assert published.note("m", "first") == published.note("m", "second") == "m"
    published.note("m", "m")
    assert published.changed() == {"m": ("first", "second", "m")}


@pytest.mark.parametrize(
    ("first", "end", "kept"),
    [(0, 9, "one two é"), (1, 9, " two é"), (0, 6, "one "), (3, 7, " two"), (0, 7, "one two"), (5, 6, "")],
)
def test_words_that_are_cut_are_left_out(first: int, end: int, kept: str) -> None:
    assert whole_words("one two é", first, end) == kept


def test_programs_with_masked_names(tmp_path: Path) -> None:
    programs = [{"label": k % 2, "code": _METHOD.replace("total", f"t{k}")} for k in range(6)]
    _records(tmp_path / "all.jsonl", programs)
    task = {"kind": "clone_retrieval", "folder": tmp_path, "train": None, "test": "all.jsonl"}
    data = _load(task | {"names": "all_masked", "code_language": "java"}, "lexical_ranker")
    assert data.test.queries[0] not in {one["code"] for one in programs}
    assert _texts(data, "queries") == _texts(data, "answers") == {one["code"] for one in programs}


def test_pairs_by_number_with_masked_names(tmp_path: Path) -> None:
    codes = [{"idx": str(k), "func": _METHOD.replace("total", f"t{k}")} for k in range(3)]
    _records(tmp_path / "data.jsonl", codes)
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("0\t1\t1\n1\t2\t0\n")
    task = {"kind": "clone_pairs", "folder": tmp_path, "codes": "data.jsonl", "names": "all_masked"}
    task |= {split: f"{split}.txt" for split in ("train", "valid", "test")} | {"target": "java"}
    assert _texts(_load(task, "lexical_labeller"), "texts") == {one["func"] for one in codes}


@pytest.mark.parametrize("has_base", [False, True])
def test_functions_without_docstrings(has_base: bool, tmp_path: Path) -> None:
    (tmp_path / "base.txt").write_text(json.dumps({_FUNCTION: 0}))
    _records(
        tmp_path / "test.jsonl",
        [{"query": "sum", "code": _FUNCTION, "idx": "q", "doc": "sum", "retrieval_idx": 0}],
    )
    task: dict[str, Any] = {"kind": "text_search", "folder": tmp_path, "test": "test.jsonl"}
    task |= {"docstrings": False} | ({"base": "base.txt"} if has_base else {})
    data = _load(task, "lexical_ranker")
    assert '"""' not in data.test.candidates[0]
    assert {text.strip() for text in _texts(data, "candidates")} == {_FUNCTION.strip()}


def test_the_ends_of_sources_without_the_word_that_is_cut(tmp_path: Path) -> None:
    _records(tmp_path / "dev.json", [{"input": "<s> first = second + third", "gt": "+ 1"}])
    data = _load({"kind": "line_completion", "folder": tmp_path, "context_characters": 10}, "copy")
    assert data.test[0].source == "nd + third"
    assert _texts(data, "sources") == {" + third"}


def test_parts_of_texts_without_words_that_are_cut(tmp_path: Path) -> None:
    _records(tmp_path / "test.jsonl", [{"code": f"alpha = {'value + ' * 9}omega\n" * 4}])
    task = {"kind": "token_completion", "folder": tmp_path, "test": "test.jsonl", "max_characters": 60}
    data = _load(task, "ngram_predictor")
    (judged,) = data.test
    (searched,) = _texts(data, "texts")
    assert judged.text.startswith(searched)
    assert 60 - len("value") <= len(searched) < 60


def test_hidden_words_stand_where_they_were_hidden(tmp_path: Path) -> None:
    item = {"idx": "1", "nl_tokens": ["the", "best"], "pl_tokens": ["return", "<mask>", "(", "a", ")"]}
    (tmp_path / "items.json").write_text(json.dumps([item]))
    (tmp_path / "answers.txt").write_text("1<CODESPLIT>min\n")
    task = {"kind": "cloze", "items": tmp_path / "items.json", "answers": tmp_path / "answers.txt"}
    assert _texts(_load(task, "lexical_labeller"), "texts") == {"return min ( a )"}


@needs_task_data
def test_the_published_functions_are_searched_with_their_names() -> None:
    folder = TASK_DATA / "codexglue-translation"
    data = _load({"kind": "code_search", "folder": folder, "names": "all_masked"}, "lexical_ranker")
    lines = (folder / "test.java-cs.txt.java").read_text().split("\n")
    assert _texts(data, "queries") == {line.strip() for line in lines if line.strip()}
    assert {number for one in searched_texts(data.test, data.published) for number in one.items} == set(
        range(len(data.test.queries))
    )
