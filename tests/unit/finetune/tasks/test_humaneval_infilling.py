"""HumanEval-Infilling: the files are read, fillings are run, and lengths are own, fixed or given."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from data_prep.tokenizer import CodeTokenizer
from finetune.modalities.base import Source, no_progress
from finetune.modalities.writing import Pair, WritingData, WritingEvaluation
from finetune.systems.base import Base
from finetune.systems.writers.zero_shot_infiller import ZeroShotInfiller, ZeroShotInfillerConfig
from finetune.tasks.humaneval_infilling import (
    FILE_NAMES,
    HumanEvalInfilling,
    HumanEvalInfillingConfig,
    read_holes,
)
from pretrain.inference.folders import find_model_folder
from tests.task_data import TASK_DATA, needs_task_data

_PUBLISHED = TASK_DATA / "humaneval-infilling"
NOWHERE = Source(prep=None, seed=3)


def _row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "task_id": f"Lines/HumanEval/{number}/L0",
        "entry_point": f"f{number}",
        "prompt": f"def f{number}(x):\n",
        "canonical_solution": f"    x = x + {number}\n",
        "suffix": "    return x\n",
        "test": f"def check(candidate):\n    assert candidate(1) == {number + 1}\n",
    } | changes


def _write(folder: Path, kind: str = "single_line", rows: list[Any] | None = None) -> Path:
    path = folder / FILE_NAMES[kind]  # type: ignore[index]
    lines = [json.dumps(row) for row in ([_row(0), _row(1)] if rows is None else rows)]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


def _task(folder: Path, **settings: Any) -> HumanEvalInfilling:
    return HumanEvalInfillingConfig(folder=folder, **{"holes": ("single_line",)} | settings).build()


def test_fillings_are_run_with_what_stands_around_them(tmp_path: Path) -> None:
    _write(tmp_path)
    _write(tmp_path, "random_span", [_row(7, task_id="Spans/HumanEval/7/1")])
    task = _task(tmp_path, holes=("single_line", "random_span"), samples=2, ks=(1, 2))
    items = task.load(NOWHERE).test
    assert [item.key for item in items][:3] == [
        "Lines/HumanEval/0/L0#0",
        "Lines/HumanEval/0/L0#1",
        "Lines/HumanEval/1/L0#0",
    ]
    assert (items[0].source, items[0].suffix) == ("def f0(x):\n", "    return x\n")
    # Another right line passes and is no exact match; the hole's own text is both.
    written = ["    pass\n", "    x = 0\n", "    x = x + 1\n", "    x += 1\n", "    x = x + 7\n", "x("]
    found = {one.name: round(one.value, 2) for one in task.evaluate(items, written)}
    assert found.pop("edit_similarity") > 50
    assert list(found.items())[:3] == [("pass_at_1", 0.67), ("pass_at_2", 1.0), ("exact_match", 33.33)]
    assert found["pass_at_1_single_line"] == 0.75
    assert found["pass_at_1_random_span"] == 0.5
    assert found["exact_match_single_line"] == 25
    assert task.evaluate_headline(items, written).name == "pass_at_1"


def test_training_holes_come_from_a_corpus(tmp_path: Path, corpus: PreparedCorpus) -> None:
    kinds = ("single_line", "multi_line", "random_span")
    for kind in kinds:
        _write(tmp_path, kind, [_row(0, task_id=f"{kind}/0")])
    task = _task(tmp_path, holes=kinds)
    data = task.load(Source(prep=corpus.folder, seed=3))
    assert len(data.train) > 15
    assert len(data.test) == 3
    for pair in data.train:
        (hole,), kind = pair.references, pair.key.rsplit("-", 1)[1]
        assert hole.strip()
        assert pair.suffix is not None
        if kind != "random_span":
            assert pair.source.endswith("\n")
            assert hole.endswith("\n")
            assert hole.count("\n") == 1 or kind == "multi_line"
    names = [one.name for one in task.evaluate(data.valid, [one.references[0] for one in data.valid])]
    assert names == ["exact_match", "edit_similarity"]
    with pytest.raises(UserError, match="cannot be evaluated together"):
        task.evaluate([data.test[0], data.valid[0]], ["", ""])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([_row(0), {"task_id": "a"}], r"line 2 has no field 'entry_point'"),
        ([_row(0, suffix=None)], r"record 1: field 'suffix' must be a text, not NoneType"),
        ([_row(0, canonical_solution=" \n")], r"record 1: the hole is empty"),
        ([_row(0), _row(0)], r"has 2 records with the task_id Lines/HumanEval/0/L0"),
        (["no row"], r"line 1 is a JSON str, not an object"),
        ([], r"is empty"),
    ],
)
def test_wrong_rows_are_one_line(tmp_path: Path, rows: list[Any], message: str) -> None:
    path = _write(tmp_path, rows=rows)
    with pytest.raises(UserError, match=message) as error:
        read_holes(tmp_path, "single_line")
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_and_damaged_files_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist: check the task's folder"):
        _task(tmp_path).load(NOWHERE)
    path = _write(tmp_path)
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(UserError, match="cannot be unpacked"):
        _task(tmp_path).load(NOWHERE)
    path.write_bytes(gzip.compress(b"{"))
    with pytest.raises(UserError, match="line 1 is not JSON"):
        _task(tmp_path).load(NOWHERE)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"holes": ()}, "must name each kind once"),
        ({"ks": (1, 2)}, "none above samples=1"),
        ({"max_test": 3}, "per_kind=N"),
    ],
)
def test_settings_that_do_not_fit(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _task(tmp_path, **settings)


@needs_task_data
def test_the_published_solutions_pass() -> None:
    task = HumanEvalInfillingConfig(folder=_PUBLISHED, per_kind=3).build()
    assert [len(read_holes(_PUBLISHED, kind)) for kind in FILE_NAMES] == [1033, 5815, 164]
    items = task.load(NOWHERE).test
    assert len(items) == 9
    found = {one.name: one.value for one in task.evaluate(items, [one.references[0] for one in items])}
    assert found["pass_at_1"] == 1
    assert found["pass_at_1_random_span"] == 1


@pytest.fixture
def base(pretrain_folder: Path) -> Base:
    files = find_model_folder(pretrain_folder)
    description = files.checked_description()
    return Base(description, CodeTokenizer.load(files.tokenizer), files, torch.device("cpu"))


_ITEMS = [
    Pair("a", "def f(x):\n", ("    x = 1\n",), suffix="    return x\n"),
    Pair("b", "x", ("=",), suffix="1\n"),
]


def _infiller(base: Base, **settings: Any) -> ZeroShotInfiller:
    return ZeroShotInfillerConfig(**settings).build(base, WritingData([], [], []), 0)


def test_lengths_are_own_fixed_or_given(base: Base) -> None:
    sources = [(one.source, one.suffix) for one in _ITEMS]

    def lengths(system: ZeroShotInfiller) -> list[int]:
        return [len(base.tokenizer.encode(text)) for text in system.write(sources, no_progress)]

    given = _infiller(base, length="given")
    with pytest.raises(UserError, match="whose reference is known: use length=own"):
        given.write(sources, no_progress)
    given.see_references(_ITEMS)
    wanted = [len(base.tokenizer.encode(one.references[0])) for one in _ITEMS]
    chosen = given._filled([given._hole(source, 0) for source in sources])
    assert [len(text) > 0 for text in chosen] == [True, True]
    assert [given._hole(source, 0).num_tokens for source in sources] == wanted
    fixed = _infiller(base, length="fixed", fixed_tokens=3)
    assert [fixed._hole(source, 0).num_tokens for source in sources] == [3, 3]
    own = _infiller(base, max_hole_tokens=5)
    assert all(length <= 2 * 5 for length in lengths(own))
    assert own.cut["written_texts"] <= 2
    with pytest.raises(ValueError, match="fixed_tokens goes with length=fixed"):
        ZeroShotInfillerConfig(length="fixed")


def test_an_evaluation_tells_the_lengths_and_nothing_else(tmp_path: Path, base: Base) -> None:
    _write(tmp_path)
    task = _task(tmp_path)
    evaluation = WritingEvaluation(task, task.load(NOWHERE), 1)
    answers = evaluation.test(_infiller(base, length="given"), no_progress)
    assert [one.name for one in answers.measured] == ["pass_at_1", "exact_match", "edit_similarity"]
    assert [set(row) for row in answers.rows] == [{"key", "source", "written", "references", "suffix"}] * 2
