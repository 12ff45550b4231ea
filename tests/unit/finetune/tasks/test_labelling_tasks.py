"""Tasks that label: CodeXGLUE's forms, pairs made of parallel files, hidden words of a corpus, bad input."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from finetune.bugs.generator import make_bugs
from finetune.formats.labelled import (
    read_answers,
    read_clone_pairs,
    read_cloze,
    read_codes,
    read_labelled_texts,
)
from finetune.held_out import HeldOutDocument
from finetune.modalities.base import Answers, Source
from finetune.modalities.labelling import Labelled, LabellingData, LabellingEvaluation
from finetune.systems.labellers.lexical import LexicalLabellerConfig
from finetune.tasks.clone_pairs import ClonePairs, ClonePairsConfig
from finetune.tasks.cloze import Cloze, ClozeConfig, masked_words
from finetune.tasks.defect import Defect, DefectConfig
from finetune.tasks.splits import held_out
from tests.task_data import TASK_DATA, needs_task_data

NO_CORPUS = Source(None, 0)


def lines(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def measured(task: Defect | ClonePairs | Cloze, data: LabellingData) -> dict[str, float]:
    system = LexicalLabellerConfig().build(None, data, 0)
    found = system.probabilities([item.texts for item in data.test], lambda done: None)
    return {one.name: one.value for one in task.evaluate(data.test, found)}


# Defects


def test_a_corpus_gives_functions_with_made_bugs_and_without(corpus: PreparedCorpus) -> None:
    task = Defect(DefectConfig(max_train=60, max_test=30))
    data, again = (task.load(Source(corpus.folder, 1)) for _ in range(2))
    assert (data.train, data.valid, data.test) == (again.train, again.valid, again.test)
    assert task.reads_corpus
    assert task.files() == []
    assert (len(data.train), len(data.valid), len(data.test)) == (58, 1, 30)
    assert [item.label for item in data.test] == [0, 1] * 15
    for sound, defective in zip(data.train[::2], data.train[1::2], strict=True):
        assert (sound.label, defective.label) == (0, 1)
        assert make_bugs(sound.texts[0], "python", 0, 1)
        assert sound.texts != defective.texts
    texts = [item.texts for item in (*data.train, *data.valid, *data.test)]
    assert len(set(texts)) == len(texts)
    assert data.facts["test_share_defective"] == 0.5
    assert sum(value for name, value in data.facts.items() if name.startswith("test_made_")) == 30


def test_functions_of_the_train_split_are_learnt_from_where_asked(corpus: PreparedCorpus) -> None:
    some = Defect(DefectConfig(max_test=30)).load(Source(corpus.folder, 1))
    more = Defect(DefectConfig(max_test=30, train_splits=("validation", "train"))).load(
        Source(corpus.folder, 1)
    )
    assert more.test == some.test
    assert len(more.train) > len(some.train)
    judged = {text for item in more.test for text in item.texts}
    assert judged.isdisjoint(text for item in (*more.train, *more.valid) for text in item.texts)


def test_a_corpus_without_functions_of_the_language_is_refused(corpus: PreparedCorpus) -> None:
    with pytest.raises(UserError, match="the test split has no Java document"):
        Defect(DefectConfig(language="Java")).load(Source(corpus.folder, 1))
    with pytest.raises(UserError, match="needs folder=DIR or a prepared corpus"):
        Defect(DefectConfig()).load(NO_CORPUS)


def test_defects_in_devigns_form(tmp_path: Path) -> None:
    for split, number in (("train", 60), ("test", 10)):
        records = [
            {"func": f"int f{split}() {{ {'bad' if i % 2 else 'good'}{i}; }}", "target": i % 2}
            for i in range(number)
        ]
        lines(tmp_path / f"{split}.jsonl", [*records, records[0]] if split == "train" else records)
    task = Defect(DefectConfig(folder=tmp_path, valid=None, max_train=50))
    data = task.load(NO_CORPUS)
    assert (len(data.train), len(data.valid), len(data.test)) == (50, 3, 10)
    assert data.facts["test_share_defective"] == 0.5
    assert data.facts["test_texts_in_train"] == 0
    assert measured(task, data) == {"accuracy": 1.0, "f1": 1.0}
    assert len(task.files()) == 2


@pytest.mark.parametrize("label", [2, -1, "1", None, True, 0.5])
def test_labels_out_of_range_are_refused(tmp_path: Path, label: Any) -> None:
    path = lines(tmp_path / "f.jsonl", [{"func": "x", "target": 0}, {"func": "x", "target": label}])
    with pytest.raises(UserError, match="f.jsonl record 2: the label is .*, but labels are 0 to 1"):
        read_labelled_texts(path, "func", "target", 2)


@pytest.mark.parametrize("text", ["", "  ", None, 3])
def test_empty_texts_are_refused(tmp_path: Path, text: Any) -> None:
    path = lines(tmp_path / "f.jsonl", [{"func": text, "target": 0}])
    with pytest.raises(UserError, match="record 1: 'func' must be a text that is not empty"):
        read_labelled_texts(path, "func", "target", 2)


# Pairs


@pytest.mark.parametrize("given", [{"train": None, "valid": None}, {"train": None}])
def test_functions_can_be_judged_by_without_any_to_learn_from(tmp_path: Path, given: dict[str, Any]) -> None:
    for split in ("test", "valid"):
        lines(tmp_path / f"{split}.jsonl", [{"func": "a", "target": 0}, {"func": "b", "target": 1}])
    data = Defect(DefectConfig(folder=tmp_path, **given)).load(Source(None, 0))
    assert not data.train
    assert len(data.test) == 2


def test_pairs_in_bigclonebenchs_form(tmp_path: Path) -> None:
    lines(
        tmp_path / "data.jsonl",
        [{"idx": str(i), "func": f"int f() {{ way{'abc'[i % 3]}; }}"} for i in range(9)],
    )
    for split in ("train", "valid", "test"):
        rows = [f"{a}\t{b}\t{int(a % 3 == b % 3)}" for a in range(9) for b in range(a)]
        (tmp_path / f"{split}.txt").write_text("\n".join(rows) + "\n")
    config = ClonePairsConfig(
        folder=tmp_path,
        train="train.txt",
        valid="valid.txt",
        test="test.txt",
        codes="data.jsonl",
        target="java",
        max_test=20,
    )
    task = ClonePairs(config)
    data = task.load(NO_CORPUS)
    assert (len(data.train), len(data.test)) == (36, 20)
    assert measured(task, data)["f1"] == 1.0
    assert len(task.files()) == 4


def test_made_pairs_are_clones_and_near_misses(tmp_path: Path) -> None:
    kinds = ["read", "write", "open", "close"]
    rows = [f"{kind} file number {'abcdefg'[i]}{kind}" for kind in kinds for i in range(7)]
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.java").write_text("\n".join(f"java {row}" for row in rows) + "\n")
        (tmp_path / f"{split}.cs").write_text("\n".join(f"cs {row}" for row in rows) + "\n")
    files = {split: split + ".{side}" for split in ("train", "valid", "test")}
    (tmp_path / "train.java").write_text("\n" + (tmp_path / "train.java").read_text())
    (tmp_path / "train.cs").write_text("nobody\n" + (tmp_path / "train.cs").read_text())
    task = ClonePairs(ClonePairsConfig(folder=tmp_path, **files, nearest=3))
    data, again = task.load(NO_CORPUS), task.load(NO_CORPUS)
    assert data == again
    assert len(data.test) == 56
    assert data.facts["test_share_clone"] == 0.5
    assert data.facts["train_pairs_with_an_empty_side_left_out"] == 1
    assert "test_pairs_with_an_empty_side_left_out" not in data.facts
    for item in data.test:
        first, second = (text.split()[1:] for text in item.texts)
        assert (first == second) == bool(item.label)
        assert first[0] == second[0]  # a near miss is of the same kind


def test_the_threshold_of_a_clone_is_chosen_on_the_validation_split_and_kept_where_one_is_given(
    tmp_path: Path,
) -> None:
    task = ClonePairs(ClonePairsConfig(folder=tmp_path))
    valid = [Labelled("a", ("x", "y"), 1), Labelled("b", ("x", "z"), 0), Labelled("c", ("z", "z"), 1)]

    class Careful:
        """Far too much so: clones have a fifth, others a twentieth."""

        learner = None

        def probabilities(self, texts: Sequence[tuple[str, ...]], on_progress: object) -> NDArray[np.float64]:
            clone_N = np.array(
                [0.05 if second in ("z", "r") and first != "z" else 0.2 for first, second in texts]
            )
            return np.stack([1 - clone_N, clone_N], axis=1)

    test = [Labelled("d", ("p", "q"), 1), Labelled("e", ("p", "r"), 0)]

    def found(valid: list[Labelled], threshold: float | None = None) -> tuple[Answers, dict[str, float]]:
        data = LabellingData([], valid, test, {}, 2, 2)
        answers = LabellingEvaluation(task, data, 1, threshold).test(Careful(), lambda _: None)
        return answers, {one.name: one.value for one in answers.measured}

    answers, metrics = found(valid)
    assert answers.threshold == pytest.approx(0.125)
    assert (metrics["f1"], metrics["accuracy"], metrics["f1_untuned"]) == (1.0, 1.0, 0.0)
    assert [row["given"] for row in answers.rows] == [1, 0]
    answers, metrics = found(valid, 0.3)
    assert (answers.threshold, metrics["f1"]) == (0.3, 0.0), "a system's own threshold stands"
    answers, metrics = found(valid[1:2])
    assert answers.threshold is None, "no clone to choose by"
    assert metrics["f1"] == 0.0
    assert "f1_untuned" not in metrics


def test_lines_that_are_no_pairs_are_refused(tmp_path: Path) -> None:
    codes, path = {"1": "a", "2": "b"}, tmp_path / "p.txt"
    for text, said in (
        ("1\t2", "p.txt line 1 has 2 fields, not 3"),
        ("1\t3\t0", "line 1: no function has idx 3"),
        ("1\t2\t2", "line 1: the label is '2', but labels are 0 to 1"),
        ("\n", "p.txt is empty"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=said):
            read_clone_pairs(path, codes)
    twice = lines(tmp_path / "d.jsonl", [{"idx": 1, "func": "a"}, {"idx": "1", "func": "b"}])
    with pytest.raises(UserError, match="idx 1 already stands for another function"):
        read_codes(twice)


@needs_task_data
def test_made_pairs_of_the_translation_set() -> None:
    """Measured here: what likeness of words alone reaches, names kept and masked."""
    found = {}
    for names in ("kept", "all_masked"):
        config = ClonePairsConfig(
            folder=TASK_DATA / "codexglue-translation", names=names, max_train=500, max_test=300
        )
        found[names] = measured(ClonePairs(config), ClonePairs(config).load(NO_CORPUS))["f1"]
    assert found["kept"] > found["all_masked"] + 0.1


# Hidden words


def test_every_max_and_min_is_masked_once() -> None:
    text = "a = 1\nb = max(a, 2)\nc = min(b, 'max')  # min\nd = maximum\n"
    document = HeldOutDocument("p/f.py", text, np.zeros(0, dtype=np.int64))
    items = list(masked_words(document, ("max", "min"), context_lines=1))
    assert [(item.texts[0], item.label) for item in items] == [
        ("a = 1\nb = <mask>(a, 2)\nc = min(b, 'max')  # min", 0),
        ("b = max(a, 2)\nc = <mask>(b, 'max')  # min\nd = maximum", 1),
    ]
    assert len({item.key for item in items}) == 2
    marked = HeldOutDocument("p/g.py", "x = '<mask>'\ny = max(x)\n", np.zeros(0, dtype=np.int64))
    assert not list(masked_words(marked, ("max", "min"), context_lines=1))


def test_a_corpus_gives_cloze_items_with_answers(corpus: PreparedCorpus) -> None:
    task = Cloze(ClozeConfig())
    data, again = (task.load(Source(corpus.folder, 1)) for _ in range(2))
    assert data == again
    assert data.train
    assert data.test
    assert all(item.texts[0].count("<mask>") == 1 for item in [*data.train, *data.valid, *data.test])
    assert task.labels == ("max", "min")
    assert data.facts["test_share_max"] + data.facts["test_share_min"] == pytest.approx(1.0)
    with pytest.raises(UserError, match="has none of the words qqq, zzz"):
        Cloze(ClozeConfig(words=("qqq", "zzz"))).load(Source(corpus.folder, 1))
    with pytest.raises(UserError, match="needs items=FILE or a prepared corpus"):
        Cloze(ClozeConfig()).load(NO_CORPUS)


def cloze_file(path: Path) -> Path:
    records = [
        {"idx": f"maxmin-{i}", "nl_tokens": ["The", "largest"], "pl_tokens": ["return", "<mask>", "(", ")"]}
        for i in range(3)
    ]
    path.write_text(json.dumps(records))
    return path


def test_codexglues_items_need_answers(tmp_path: Path) -> None:
    items, answers = cloze_file(tmp_path / "clozeTest.json"), tmp_path / "answers.txt"
    assert read_cloze(items)[0].text == "The largest return <mask> ( )"
    with pytest.raises(UserError, match="has no answers, and CodeXGLUE publishes none"):
        Cloze(ClozeConfig(items=items)).load(NO_CORPUS)
    answers.write_text("maxmin-0<CODESPLIT>max\nmaxmin-1<CODESPLIT>min\n")
    with pytest.raises(UserError, match="has no answer for maxmin-2 and 0 others"):
        Cloze(ClozeConfig(items=items, answers=answers)).load(NO_CORPUS)
    answers.write_text(answers.read_text() + "maxmin-2<CODESPLIT>max\n")
    data = Cloze(ClozeConfig(items=items, answers=answers)).load(NO_CORPUS)
    assert [item.label for item in data.test] == [0, 1, 0]
    assert Cloze(ClozeConfig()).evaluate(data.test, np.eye(2)[[0, 0, 0]])[0].value == pytest.approx(2 / 3)
    answers.write_text(answers.read_text() + "maxmin-1<CODESPLIT>max\n")
    with pytest.raises(UserError, match="answers.txt line 4 answers the item 'maxmin-1' again"):
        read_answers(answers, ("max", "min"))
    answers.write_text("maxmin-0 max\n")
    with pytest.raises(UserError, match="answers.txt line 1 must be IDX<CODESPLIT>WORD"):
        read_answers(answers, ("max", "min"))


def test_items_of_one_idx_are_refused(tmp_path: Path) -> None:
    record = {"idx": 1, "nl_tokens": [], "pl_tokens": ["<mask>"]}
    with pytest.raises(UserError, match="item 2 has the idx '1' of item 1"):
        read_cloze(lines(tmp_path / "f.jsonl", [record, record]))


def test_items_with_no_mask_or_two_are_refused(tmp_path: Path) -> None:
    for tokens, said in (
        (["a"], "has 0 times <mask>"),
        (["<mask>", "<mask>"], "has 2 times"),
        ("a", "must be lists"),
    ):
        path = lines(tmp_path / "f.jsonl", [{"idx": 1, "nl_tokens": [], "pl_tokens": tokens}])
        with pytest.raises(UserError, match=said):
            read_cloze(path)


@needs_task_data
def test_all_of_codexglues_cloze_items_can_be_read() -> None:
    folder = TASK_DATA / "codexglue-cloze-maxmin"
    counts = {path.parent.name: len(read_cloze(path)) for path in folder.glob("*/clozeTest.json")}
    assert counts == {"go": 152, "java": 482, "javascript": 272, "php": 407, "python": 1264, "ruby": 38}


def test_what_is_held_out_stays_together_unless_there_is_one_group() -> None:
    items = [(document, number) for document in range(30) for number in range(4)]
    left, valid = held_out(items, 0, group_of=lambda item: item[0])
    assert len(valid) == 8
    assert not {document for document, _ in valid} & {document for document, _ in left}
    left, valid = held_out(items[:4], 0, group_of=lambda item: item[0])
    assert (len(left), len(valid)) == (3, 1)
    left, valid = held_out(items, 0, usable=lambda item: item[1] == 3)
    assert {number for _, number in valid} == {3}
    assert len(valid) == 6
    assert held_out(items[:1], 0) == (items[:1], [])


def test_one_function_alone_is_not_learnt(tmp_path: Path) -> None:
    for split in ("train", "test"):
        lines(tmp_path / f"{split}.jsonl", [{"func": "int f() {}", "target": 1}])
    data = Defect(DefectConfig(folder=tmp_path, valid=None)).load(NO_CORPUS)
    assert data.train == []
    assert data.valid == data.test
