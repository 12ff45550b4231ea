"""Completion of code tokens: data from files and from a corpus, parts of long texts, what is judged, bad input."""

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from finetune.lexing import LexemeClass, python_lexemes
from finetune.modalities.base import Source
from finetune.modalities.predicting import Code, PredictingEvaluation
from finetune.systems.predictors.ngram import NgramPredictorConfig
from finetune.tasks.token_completion import TokenCompletion, TokenCompletionConfig, part_of
from tests.example_corpus import write_corpus

NO_CORPUS = Source(None, 0)
_TEXT = "größe = f(a1)  # x\nif größe:\n    pass\n" * 3


def task(**config: Any) -> TokenCompletion:
    return TokenCompletion(TokenCompletionConfig.model_validate(config))


@given(st.integers(1, 120), st.integers(0, 1000))
def test_a_part_begins_a_line_and_has_the_whole_texts_lexemes_that_stand_in_it(most: int, seed: int) -> None:
    whole = Code("k", _TEXT, partial(python_lexemes, _TEXT))
    part = part_of(whole, most, np.random.default_rng(seed))
    assert len(part.text) <= most
    data = part.text.encode()
    assert [data[one.start_byte : one.end_byte].decode() for one in part.lexemes] == [
        one.text for one in part.lexemes
    ]
    # A short part may stand in several places.
    places = [place for place in range(len(_TEXT)) if _TEXT.startswith(part.text, place)]
    assert any(
        begins_where_it_may(place, most)
        and [one.text for one in part.lexemes] == lexemes_within(whole, place, place + len(part.text))
        for place in places
    )


def begins_where_it_may(place: int, most: int) -> bool:
    """At a line, or in one longer than half a part."""
    begin = _TEXT.rfind("\n", 0, place) + 1
    return begin == place or len(_TEXT[begin:].split("\n")[0]) > most // 2


def lexemes_within(whole: Code, start: int, end: int) -> list[str]:
    first, last = len(_TEXT[:start].encode()), len(_TEXT[:end].encode())
    return [one.text for one in whole.lexemes if first <= one.start_byte and one.end_byte <= last]


def test_parts_are_drawn_from_anywhere_also_where_there_are_no_lines() -> None:
    generator = np.random.default_rng(0)
    for text in (" ".join(f"t{number}" for number in range(400)), "".join(f"t{n}\n" for n in range(400))):
        parts = [part_of(Code("k", text, list), 300, generator).text for _ in range(2000)]
        starts = {text.index(part) for part in parts}
        assert all(any(f"t{number}" in part.split() for part in parts) for number in range(400))
        assert all(start == 0 or text[start - 1] in " \n" for start in starts)
        assert any(part.strip().endswith("t399") for part in parts)
        assert any(part.startswith("t0") for part in parts)


@pytest.mark.parametrize("comma", [", ", ","])
def test_all_of_a_long_line_is_judged_and_no_part_is_a_few_characters_at_the_end(comma: str) -> None:
    numbers = [f"{number:05d}" for number in range(1500)]
    text = f"import os\nx = [{comma.join(numbers)}]\ny = 2\n"
    generator = np.random.default_rng(0)
    parts = [part_of(Code("k", text, list), 2000, generator).text for _ in range(1000)]
    assert min(map(len, parts)) > 1000
    assert all(any(number in part for part in parts) for number in numbers)
    assert any(part.startswith("import os") for part in parts)
    assert any(part.endswith("y = 2\n") for part in parts)


def test_few_texts_of_which_some_have_no_token_can_be_learnt(tmp_path: Path) -> None:
    records = [{"code": "# nothing\n" if number % 5 == 0 else f"x = {number}\n"} for number in range(30)]
    for name in ("train.jsonl", "test.jsonl"):
        (tmp_path / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    files = task(folder=tmp_path, train="train.jsonl", test="test.jsonl")
    for seed in range(20):
        data = files.load(Source(None, seed))
        assert (len(data.train), len(data.valid)) == (29, 1)
        assert data.valid[0].lexemes


def test_a_folder_without_a_file_in_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="folder holds files: name test"):
        task(folder=tmp_path)


def test_a_corpus_gives_whole_texts_to_learn_and_parts_to_be_judged_by(corpus: PreparedCorpus) -> None:
    data = task(max_characters=900).load(Source(corpus.folder, 0))
    assert len(data.train) == 3
    assert max(len(one.text) for one in data.train) > 9000
    assert len(data.valid) == 1
    # What is drawn of a file may be all docstring.
    assert len(data.test) + data.facts.get("test_left_out_without_tokens", 0) == 4
    assert len(data.test) >= 2
    for one in [*data.valid, *data.test]:
        assert 0 < len(one.text) <= 900
        assert one.lexemes
    again = task(max_characters=900).load(Source(corpus.folder, 0))
    assert [one.text for one in again.test] == [one.text for one in data.test]


def test_files_in_codexglues_form_and_what_is_verbatim_in_train(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("<s> a = 1 <EOL> </s>\n<s> b <EOL> c </s>\n<s> d </s>\n")
    (tmp_path / "dev.txt").write_text("<s> e = 2 </s>\n")
    (tmp_path / "test.txt").write_text("<s> b <EOL> c </s>\n<s> <EOL> </s>\n<s> f </s>\n")
    config = {"folder": tmp_path, "train": "train.txt", "valid": "dev.txt", "test": "test.txt"}
    one = task(**config)
    data = one.load(NO_CORPUS)
    assert [item.text for item in data.test] == ["b <EOL> c", "f"]
    assert [[lexeme.text for lexeme in item.lexemes] for item in data.test] == [["b", "c"], ["f"]]
    assert data.facts == {"test_left_out_without_tokens": 1, "test_texts_in_train": 1}
    assert [item.text for item in data.valid] == ["e = 2"]
    assert [lexeme.text for lexeme in one.code("k", "x <EOL> y").lexemes] == ["x", "y"]
    assert one.files() == [tmp_path / name for name in ("train.txt", "dev.txt", "test.txt")]


def test_records_of_another_language(tmp_path: Path) -> None:
    rows = [{"code": "int f() { return 1; }"}, {"code": "int f( {"}]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = task(folder=tmp_path, test="test.jsonl", language="Java").load(NO_CORPUS)
    assert [one.key for one in data.test] == ["record 1"]
    assert not data.train
    with pytest.raises(
        UserError, match=r"none of the 2 test texts has a code token: check .* task.language=Go"
    ):
        task(folder=tmp_path, test="test.jsonl", language="Go").load(NO_CORPUS)


def test_judged_by_all_tokens_and_by_what_they_are() -> None:
    text = "if a:\n    b = 1\n"
    items = [task().code("1", text), task().code("2", "c")]
    ranks = [np.array([1.0, 4.0, 1.0, 1.0, 2.0, math.inf]), np.array([1.0])]
    assert [one.text for one in items[0].lexemes] == ["if", "a", ":", "b", "=", "1"]
    found = {one.name: one.value for one in task().evaluate(items, ranks)}
    assert list(found)[:2] == ["accuracy", "mrr"]
    assert found["accuracy"] == pytest.approx(100 * 4 / 7)
    assert found["mrr"] == pytest.approx((1 + 1 / 4 + 1 + 1 + 1 / 2 + 0 + 1) / 7)
    assert found["accuracy_identifier"] == pytest.approx(100 * 2 / 3)
    assert found["accuracy_operator"] == 50.0
    assert found["accuracy_keyword"] == 100.0
    assert found["accuracy_literal"] == 0.0
    assert {one.removeprefix("accuracy_") for one in found} >= {str(kind) for kind in LexemeClass}


def test_the_rows_of_an_exam_are_what_its_numbers_are_made_of(corpus: PreparedCorpus) -> None:
    one = task(max_test=2)
    data = one.load(Source(corpus.folder, 0))
    system = NgramPredictorConfig().build(None, data, 0)  # type: ignore[arg-type]
    evaluation = PredictingEvaluation(one, data, 10)
    answers = evaluation.test(system, lambda _: None)
    rows = json.loads(json.dumps(answers.rows, allow_nan=False))
    ranks = [[math.inf if rank is None else rank for rank in row["ranks"]] for row in rows]
    assert [len(row["tokens"]) for row in rows] == list(map(len, ranks))
    again = [one.code(row["key"], row["source"]) for row in rows]
    assert answers.measured[0].value == pytest.approx(
        100 * sum(rank == 1 for row in ranks for rank in row) / sum(map(len, ranks))
    )
    assert len(again) == evaluation.num_test_items == 2
    assert 0 < evaluation.validate(system) < 100


@pytest.mark.parametrize(
    ("config", "reported"),
    [
        ({"test": "a.txt"}, "folder must be given"),
        ({"folder": "f", "train": "a.txt"}, "test must be given with train"),
        ({"folder": "f", "test": "a.txt", "valid": "b.txt"}, "train must be given with valid"),
    ],
)
def test_files_that_do_not_go_together_are_refused(config: dict[str, Any], reported: str) -> None:
    with pytest.raises(ValidationError, match=reported):
        task(**config)


def test_data_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give test=FILE or a prep folder"):
        task().load(NO_CORPUS)
    (tmp_path / "t.jsonl").write_text('{"code": 3}\n')
    with pytest.raises(UserError, match=r"t\.jsonl record 1: 'code' must be a text, not int"):
        task(folder=tmp_path, test="t.jsonl").load(NO_CORPUS)
    with pytest.raises(UserError, match="no field 'body'; it has code"):
        task(folder=tmp_path, test="t.jsonl", code="body").load(NO_CORPUS)


def test_one_text_alone_is_not_learnt(tmp_path: Path) -> None:
    corpus = write_corpus(
        tmp_path, {"validation": {"p": {"a.py": "x = 1\n"}}, "test": {"q": {"b.py": "y = 2\n"}}}
    )
    data = task().load(Source(corpus.folder, 0))
    assert not data.train
    assert [one.text for one in data.valid] == ["y = 2\n"]
