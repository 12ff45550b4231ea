"""Generation, HumanEval, summaries, line completion and infilling."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from finetune.functions import documented_bodies
from finetune.modalities.base import Source
from finetune.modalities.writing import Pair
from finetune.syntax import prose_lines
from finetune.tasks.generation import Generation, GenerationConfig
from finetune.tasks.humaneval import HumanEval, HumanEvalConfig
from finetune.tasks.humaneval_problems import humaneval_problems
from finetune.tasks.infilling import Infilling, InfillingConfig
from finetune.tasks.line_completion import LineCompletion, LineCompletionConfig, cut_lines
from finetune.tasks.summarisation import Summarisation, SummarisationConfig
from tests.task_data import TASK_DATA, needs_task_data

NOWHERE = Source(prep=None, seed=3)


def _jsonl(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.fixture
def source(corpus: PreparedCorpus) -> Source:
    return Source(prep=corpus.folder, seed=3)


def test_generation_reads_concode_and_compares_tokens(tmp_path: Path) -> None:
    _jsonl(
        tmp_path / "train.json",
        [{"nl": f"add {n}", "code": f"int f ( ) {{ return {n} ; }}"} for n in range(30)],
    )
    _jsonl(tmp_path / "dev.json", [{"nl": "add it", "code": "int g ( ) { return 1 ; }"}])
    task = Generation(GenerationConfig(folder=tmp_path))
    data = task.load(NOWHERE)
    assert (len(data.train), len(data.valid), len(data.test)) == (29, 1, 1)
    assert data.test[0].source == "add it"
    measured = task.evaluate(data.test, ["int g ( )  { return 1 ;  }"])
    assert [(one.name, one.value) for one in measured] == [
        ("bleu", pytest.approx(100)),
        ("exact_match", 100),
        # Nothing flows in it, which counts as no match of a quarter.
        ("codebleu", pytest.approx(75)),
    ]
    assert task.evaluate_headline(data.test, ["int"]).name == "bleu"


def test_generation_takes_bodies_from_a_corpus(source: Source) -> None:
    task = Generation(GenerationConfig(language="python", max_lines=5))
    data = task.load(source)
    assert len(data.train) > 30
    for pair in (*data.train, *data.test):
        compile(pair.source + pair.references[0], pair.key, "exec")
        assert 1 <= len(pair.references[0].splitlines()) <= 5
    # Spaces and how wide the indentation is do not count, names do.
    one = [pair for pair in data.test if "return" in pair.references[0]][:1]
    other_layout = "\n".join(
        line.removeprefix("    ").replace(", ", ",") for line in one[0].references[0].split("\n")
    )
    assert {value.name: value.value for value in task.evaluate(one, [other_layout])}["exact_match"] == 100
    assert task.evaluate(one, [other_layout.replace("return", "retrun")])[1].value == 0
    nested = [Pair("f", "def f(xs):\n", ("    for x in xs:\n        a(x)\n        b(x)\n",))]
    other = "    for x in xs:\n        a(x)\n    b(x)\n"
    assert {value.name: value.value for value in task.evaluate(nested, [other])}["exact_match"] == 0
    assert task.evaluate_headline(nested, [other]).value < 100
    with pytest.raises(ValueError, match="language='java' needs a folder, or write language=python"):
        GenerationConfig()


def test_withheld_labels_are_refused(tmp_path: Path) -> None:
    _jsonl(tmp_path / "test.json", [{"nl": "add it", "code": ""}] * 2)
    task = Generation(GenerationConfig(folder=tmp_path, train=None, test="test.json"))
    with pytest.raises(UserError, match=r"test.json: 2 of 2 items .* labels are withheld"):
        task.load(NOWHERE)


def test_humaneval_runs_what_is_written_and_learns_from_a_corpus(source: Source) -> None:
    task = HumanEval(HumanEvalConfig(problems=3, samples=2, ks=(1, 2)))
    data = task.load(source)
    assert [item.key for item in data.test[:3]] == ["HumanEval/0#0", "HumanEval/0#1", "HumanEval/1#0"]
    right = [problem.canonical_solution for problem in humaneval_problems()[:3]]
    # One right sample of two for the first problem, none for the second, both for the third.
    written = ["    return 1\n", right[0], "    pass\n", "x(", right[2], right[2]]
    assert [(one.name, round(one.value, 3)) for one in task.evaluate(data.test, written)] == [
        ("pass_at_1", 0.5),
        ("pass_at_2", 0.667),
    ]
    assert task.evaluate_headline(data.test, written).name == "pass_at_1"
    assert data.train
    for pair in data.train:
        compile(pair.source + pair.references[0], pair.key, "exec")
    assert task.evaluate_headline(data.valid, [pair.references[0] for pair in data.valid]).name == "bleu"
    with pytest.raises(UserError, match="cannot be evaluated together"):
        task.evaluate([data.test[0], data.valid[0]], ["", ""])


def test_humaneval_needs_as_many_samples_as_k() -> None:
    with pytest.raises(ValueError, match="none above samples=1"):
        HumanEvalConfig(ks=(1, 10))


def test_documented_bodies_end_heads_with_the_docstring() -> None:
    text = 'class A:\n    def f(self):\n        """Doc.\n\n    More."""\n        # why\n        return 1\n\n'
    text += 'def g(): "doc"; return 1\n\ndef h():\n    "only"\n\ndef i():\n    return 1\n'
    assert documented_bodies(text) == [
        ('def f(self):\n    """Doc.\n\nMore."""\n', "    # why\n    return 1\n"),
    ]
    assert documented_bodies("def f(:") == []


def test_summaries_from_tokens(tmp_path: Path) -> None:
    record = {
        "code_tokens": ["def", "f", "(", ")", ":"],
        "docstring_tokens": ["Gives", "nothing", "back", "."],
    }
    for name in ("train", "valid", "test"):
        _jsonl(tmp_path / f"{name}.jsonl", [record])
    task = Summarisation(SummarisationConfig(folder=tmp_path))
    data = task.load(NOWHERE)
    assert data.test[0].source == "def f ( ) :"
    assert data.test[0].references == ("Gives nothing back .",)
    measured = {one.name: one.value for one in task.evaluate(data.test, ["gives nothing back."])}
    assert measured["summary_bleu" if "summary_bleu" in measured else "bleu"] == pytest.approx(100)
    assert measured["rouge_l"] > 0


@pytest.mark.parametrize(
    "task",
    [
        Summarisation(SummarisationConfig(max_train=30, max_test=20)),
        LineCompletion(LineCompletionConfig(max_train=30, max_test=20)),
        Infilling(InfillingConfig(max_train=30, max_test=20, per_document=12)),
        Generation(GenerationConfig(language="python", max_train=30, max_test=20)),
    ],
)
def test_derived_splits_are_reproducible_disjoint_and_judged(task: Any, source: Source) -> None:
    data = task.load(source)
    assert data == task.load(source)
    assert (len(data.train), len(data.test)) == (30, 20)
    assert data.valid
    files = [{pair.key.partition(":")[0] for pair in split} for split in (data.train, data.valid, data.test)]
    assert not files[2] & (files[0] | files[1])
    keys = [pair.key for split in (data.train, data.valid, data.test) for pair in split]
    assert len(set(keys)) == len(keys)
    right = [pair.references[0] for pair in data.test]
    measured = task.evaluate(data.test, right)
    assert measured[0].value == pytest.approx(100)
    assert task.evaluate_headline(data.test, right).name == measured[0].name
    assert task.evaluate(data.test, ["zzz"] * 20)[0].value < 50
    assert task.load(Source(prep=source.prep, seed=4)) != data
    with pytest.raises(UserError, match="no corpus to make data from"):
        task.load(NOWHERE)


def test_lines_are_cut_within_and_long_inputs_keep_their_right_end(tmp_path: Path) -> None:
    _jsonl(tmp_path / "dev.json", [{"input": "<s> " + "x " * 300 + "return", "gt": "<NUM_LIT:1> <STR_LIT>"}])
    task = LineCompletion(LineCompletionConfig(folder=tmp_path, context_characters=100))
    data = task.load(NOWHERE)
    assert data.test[0].source == ("x " * 300 + "return")[-100:]
    assert data.facts["test_sources_cut"] == 1
    assert [one.value for one in task.evaluate(data.test, ["1"])] == [100, 100]


def test_training_lines_are_made_in_the_form_of_the_published_set(tmp_path: Path, source: Source) -> None:
    _jsonl(tmp_path / "dev.json", [{"input": "<s> x =", "gt": "<NUM_LIT>"}])
    (tmp_path / "literals.json").write_text('{"str": [], "num": ["0"]}')
    config = LineCompletionConfig(folder=tmp_path, literals=tmp_path / "literals.json", max_train=20)
    task = LineCompletion(config)
    data = task.load(source)
    assert tmp_path / "literals.json" in task.files()
    assert (len(data.train), len(data.test)) == (20, 1)
    assert data.valid
    for pair in data.train:
        assert "<EOL>" not in pair.references[0]
        assert '"' not in pair.references[0].replace('"<STR_LIT>"', "").replace('"""<STR_LIT>"""', "")
    assert any("<EOL>" in pair.source for pair in data.train)
    assert task.load(NOWHERE).train == []


@pytest.mark.parametrize(
    ("given", "is_beside"),
    [("literals.json", True), ("./literals.json", False), ("sub/literals.json", False), ("../l.json", False)],
)
def test_a_bare_name_of_literals_is_one_of_the_folder_and_a_path_is_a_path(
    given: str, is_beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, folder = tmp_path / "here", tmp_path / "data"
    here.mkdir()
    monkeypatch.chdir(here)
    config = LineCompletionConfig.model_validate({"folder": folder, "literals": given})
    assert config.literals == (folder if is_beside else here) / given
    assert LineCompletionConfig.model_validate(config.model_dump(mode="json")) == config
    alone = LineCompletionConfig.model_validate({"literals": given})
    assert alone.literals == here / given


@settings(max_examples=60, deadline=None)
@given(text=st.text(alphabet="ab (.\n\r\t é", max_size=120), seed=st.integers(0, 5))
def test_a_cut_line_is_put_together_again(text: str, seed: int) -> None:
    for pair in cut_lines(text, np.random.default_rng(seed), 5):
        line = text.split("\n")[int(pair.key) - 1]
        assert text.startswith(pair.source)
        assert line.rstrip() == pair.source.rpartition("\n")[2] + pair.references[0]
        assert pair.source.rpartition("\n")[2].strip()
        assert pair.references[0].strip()


def test_holes_fit_between_their_sides(source: Source, corpus: PreparedCorpus) -> None:
    sizes = set()
    texts = [
        corpus.tokenizer.decode(block.document_tokens(number)[:-1])
        for split in ("validation", "test")
        for block in map(corpus.read_block, corpus.blocks(split))
        for number in range(len(block.docs))
    ]
    task = Infilling(InfillingConfig(max_train=40, max_test=40))
    data = task.load(source)
    for pair in (*data.train, *data.test):
        assert pair.suffix is not None
        assert any(pair.source + pair.references[0] + pair.suffix in text for text in texts)
        size = pair.key.rpartition("-")[2]
        assert ("\n" in pair.references[0]) == (size == "lines")
        assert pair.references[0].strip()
        sizes.add(size)
    assert sizes == {"part", "line", "lines"}
    names = [one.name for one in task.evaluate(data.test, [pair.references[0] for pair in data.test])]
    assert names[:4] == ["exact_match", "edit_similarity", "exact_match_part", "edit_similarity_part"]


def test_prose_is_no_code() -> None:
    text = 'a = 1  # c\n"""Doc\nmore"""\n# only\nb = """x\ny"""\nc = 2\n'
    assert prose_lines(text, "python") == {1, 2, 3, 5}
    assert prose_lines("def f(:", "python") == frozenset()


@needs_task_data
@pytest.mark.parametrize(("name", "file", "items"), [
    ("py150", "dev.first1000.json", 1000), ("javaCorpus", "dev.first1500.json", 1500)
])  # fmt: skip
def test_published_line_completion_items(name: str, file: str, items: int) -> None:
    folder = TASK_DATA / "codexglue-line-completion" / name
    task = LineCompletion(LineCompletionConfig(folder=folder, test=file))
    data = task.load(NOWHERE)
    assert len(data.test) == items
    assert task.evaluate(data.test, [pair.references[0] for pair in data.test])[0].value == 100
    assert task.evaluate(data.test, [pair.source.split()[-1] for pair in data.test])[0].value < 5
