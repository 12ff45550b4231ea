"""Translation, and what all tasks from pair files have in common."""

from pathlib import Path

import pytest

from cluster.errors import UserError
from finetune.modalities.base import Source
from finetune.tasks.translation import Translation, TranslationConfig
from tests.task_data import TASK_DATA, needs_task_data

SOURCE = Source(prep=None, seed=3)


def _folder(folder: Path, splits: dict[str, list[tuple[str, str]]]) -> Path:
    for split, pairs in splits.items():
        (folder / f"{split}.java-cs.txt.java").write_text("".join(f"{java}\n" for java, _ in pairs))
        (folder / f"{split}.java-cs.txt.cs").write_text("".join(f"{cs}\n" for _, cs in pairs))
    return folder


SPLITS = {
    "train": [(f"int get{n}() {{return {n};}}", f"int Get{n}(){{return {n};}}") for n in range(40)],
    "valid": [("int size() {return n;}", "int Size(){return n;}")],
    "test": [
        ("void run ( ) { }", "void Run ( ) { }"),
        ("int other() {return 3;}", "int Get3(){return 3;}"),
        ("void stop ( int a ) { }", "void Stop ( int a ) { }"),
    ],
}


def test_pairs_of_both_directions_and_leaks_counted(tmp_path: Path) -> None:
    folder = _folder(tmp_path, SPLITS)
    there = Translation(TranslationConfig(folder=folder)).load(SOURCE)
    back = Translation(TranslationConfig(folder=folder, source="cs", target="java")).load(SOURCE)
    assert [(pair.source, pair.references[0]) for pair in there.train] == SPLITS["train"]
    assert [(pair.references[0], pair.source) for pair in back.test] == SPLITS["test"]
    assert {pair.language for pair in there.test} == {"csharp"}
    assert [pair.leaked for pair in there.test] == [False, True, False]
    assert there.facts["test_targets_in_train"] == 1
    assert back.facts["test_targets_in_train"] == 0
    assert back.facts["test_sources_in_train"] == 1
    keys = [pair.key for pair in (*there.train, *there.valid, *there.test)]
    assert len(set(keys)) == len(keys)


def test_metrics_with_and_without_leaked_items(tmp_path: Path) -> None:
    task = Translation(TranslationConfig(folder=_folder(tmp_path, SPLITS)))
    test = task.load(SOURCE).test
    # Right on the leaked item and on one of the two others.
    written = [" void Run ( ) { }\n", "int Get3(){return 3;}", "wrong"]
    measured = {one.name: one for one in task.evaluate(test, written)}
    assert measured["exact_match"].value == pytest.approx(100 * 2 / 3)
    assert measured["exact_match_unleaked"].value == pytest.approx(100 / 2)
    assert measured["exact_match_unleaked"].num_items == 2
    assert measured["bleu"].value > measured["bleu_unleaked"].value > 0
    assert task.evaluate(test, written)[0].name == task.evaluate_headline(test, written).name == "bleu"
    assert task.evaluate_headline(test, written).value == measured["bleu"].value


def test_limits_draw_the_same_items_and_leaks_are_reported_by_the_whole_file(tmp_path: Path) -> None:
    config = TranslationConfig(folder=_folder(tmp_path, SPLITS), max_train=5, max_test=2)
    data = Translation(config).load(SOURCE)
    assert (len(data.train), len(data.test)) == (5, 2)
    assert data == Translation(config).load(SOURCE)
    assert data.facts["test_targets_in_train"] == 1
    other = Translation(config).load(Source(prep=None, seed=4))
    assert other.train != data.train


def test_without_valid_file_some_of_train_is_held_out(tmp_path: Path) -> None:
    data = Translation(TranslationConfig(folder=_folder(tmp_path, SPLITS), valid=None)).load(SOURCE)
    assert len(data.valid) == 2
    assert len(data.train) == 38
    assert not {pair.key for pair in data.train} & {pair.key for pair in data.valid}


def test_empty_training_items_are_left_out_and_counted_and_empty_test_targets_refused(tmp_path: Path) -> None:
    splits = {**SPLITS, "train": [*SPLITS["train"], ("int a;", ""), ("", "int a;")]}
    data = Translation(TranslationConfig(folder=_folder(tmp_path, splits))).load(SOURCE)
    assert len(data.train) == 40
    assert data.facts["train_left_out_empty"] == 2
    _folder(tmp_path, {"test": [("a", "A"), ("b", "")]})
    with pytest.raises(
        UserError, match=r"test.java-cs.txt.cs: 1 of 2 items \(first test-2\) have an empty target"
    ):
        Translation(TranslationConfig(folder=tmp_path)).load(SOURCE)


def test_nothing_to_judge_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no item to evaluate"):
        Translation(TranslationConfig(folder=tmp_path)).evaluate([], [])


@needs_task_data
@pytest.mark.parametrize(
    ("source", "target", "bleu", "leaked"), [("java", "cs", 18.72, 59), ("cs", "java", 18.58, 43)]
)
def test_published_set_and_its_copy_row(source: str, target: str, bleu: float, leaked: int) -> None:
    """The naive copy as the official evaluator measures it on these files, and the leaks counted in their README."""
    folder = TASK_DATA / "codexglue-translation"
    task = Translation(TranslationConfig(folder=folder, source=source, target=target))
    data = task.load(SOURCE)
    assert (len(data.train), len(data.valid), len(data.test)) == (10_295, 499, 1_000)
    assert data.facts["test_targets_in_train"] == leaked
    measured = task.evaluate(data.test, [pair.source for pair in data.test])
    assert round(measured[0].value, 2) == bleu
