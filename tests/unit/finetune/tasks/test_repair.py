"""Repair."""

from pathlib import Path

import pytest

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from finetune.metrics.bleu import codexglue_bleu
from finetune.modalities.base import Source
from finetune.tasks.repair import BugsConfig, Repair, RepairConfig
from finetune.tasks.writing import references
from tests.task_data import TASK_DATA, needs_task_data

SOURCE = Source(prep=None, seed=3)
FUNCTION = "public int get{n} ( int a , int b ) {{ if ( a < {n} ) return b ; return call ( a , b ) ; }}"


def _folder(folder: Path) -> Path:
    for split, first in (("valid", 100), ("test", 200)):
        right = [FUNCTION.format(n=n) for n in range(first, first + 4)]
        (folder / f"{split}.buggy-fixed.fixed").write_text("".join(f"{line} \n" for line in right))
        buggy = [line.replace("<", ">") for line in right]
        (folder / f"{split}.buggy-fixed.buggy").write_text("".join(f"{line} \n" for line in buggy))
    # The last is judged by, so it must not be learnt.
    functions = [*(FUNCTION.format(n=n) for n in range(30)), FUNCTION.format(n=201)]
    (folder / "functions.txt").write_text("\n".join(functions) + "\n")
    return folder


def test_bugs_are_made_in_place_of_a_training_file(tmp_path: Path) -> None:
    bugs = BugsConfig(functions=_folder(tmp_path) / "functions.txt", per_function=3)
    task = Repair(RepairConfig(folder=tmp_path, train=None, bugs=bugs))
    data = task.load(SOURCE)
    right = {FUNCTION.format(n=n) for n in range(30)}
    assert {pair.references[0] for pair in data.train} == right
    assert all(pair.source not in pair.references for pair in data.train)
    assert (
        sum(count for name, count in data.facts.items() if name.startswith("made_")) == len(data.train) > 60
    )
    assert data == task.load(SOURCE)
    assert tmp_path / "functions.txt" in task.files()
    assert len(Repair(task.config.model_copy(update={"max_train": 7})).load(SOURCE).train) == 7


def test_lines_lose_their_last_space_and_copying_matches_nothing(tmp_path: Path) -> None:
    task = Repair(RepairConfig(folder=_folder(tmp_path), train=None))
    data = task.load(SOURCE)
    assert data.train == []
    assert data.test[0].references == (FUNCTION.format(n=200),)
    copied = {one.name: one.value for one in task.evaluate(data.test, [pair.source for pair in data.test])}
    assert copied["exact_match"] == 0
    assert copied["bleu"] > 80
    right = [pair.references[0] for pair in data.test]
    assert [one.value for one in task.evaluate(data.test, right)] == pytest.approx([100, 100, 100])
    assert (
        task.evaluate_headline(data.test, right).name
        == task.evaluate(data.test, right)[0].name
        == "exact_match"
    )


def test_bugs_are_made_in_functions_of_a_corpus(tmp_path: Path, corpus: PreparedCorpus) -> None:
    _folder(tmp_path)
    config = RepairConfig(folder=tmp_path, train=None, language="python", bugs=BugsConfig(pairs=25))
    data = Repair(config).load(Source(prep=corpus.folder, seed=1))
    assert len(data.train) == 25
    assert all("def " in pair.references[0] for pair in data.train)
    with pytest.raises(UserError, match="give a corpus, or a file"):
        Repair(config).load(SOURCE)


@needs_task_data
def test_published_copy_row() -> None:
    folder = TASK_DATA / "codexglue-refinement" / "small"
    task = Repair(RepairConfig(folder=folder, train=None))
    data = task.load(SOURCE)
    assert (len(data.valid), len(data.test)) == (5835, 5835)
    copied = [pair.source for pair in data.test]
    assert round(codexglue_bleu(references(data.test), copied).value, 2) == 78.06
    assert task.evaluate_headline(data.test, copied).value == 0
