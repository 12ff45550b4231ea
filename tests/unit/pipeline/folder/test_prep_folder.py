"""Which of several prepared corpora of a run is meant."""

import os
from pathlib import Path

import pytest

from cluster.errors import UserError
from cluster.storage import write_json
from pipeline.commands.trace import step_lines
from pipeline.folder.experiment_config import ExperimentRunConfig, prep_folder, pretrained_on
from pipeline.folder.prep_folder import PrepFolder, corpora_read_by, find_prep_folder, prep_read_by
from pipeline.folder.run_folder import config_text
from pipeline.folder.stage_record import StageRecord, write_record
from pretrain.weights import save_model
from tests.example_corpus import stdlib_packages, tiny_model, write_corpus

A, B = "a" * 12, "b" * 12


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Its corpus changed: it was pretrained on A, then B was prepared."""
    run = tmp_path / "run"
    for number, name in enumerate((A, B)):
        corpus = write_corpus(run / f"prep-{name}", {"test": stdlib_packages(["heapq"])})
        os.utime(corpus.folder / "manifest.json", (1000 + number, 1000 + number))
    (run / "config.yaml").write_text(config_text({}))
    return run


def pretraining(run: Path, name: str, reads: str, begun_s: int, finished: bool) -> Path:
    stage = run / f"pretrain-{name * 12}"
    stage.mkdir()
    write_json(stage / "prep.json", {"folder": f"prep-{reads}"})
    (stage / "journal.jsonl").write_text("")
    if finished:
        tokenizer = run / f"prep-{reads}" / "tokenizer.json"
        save_model(tiny_model(700), stage / "model", tokenizer)
        record = StageRecord("pretrain", name * 64, 1, {}, {"prep": reads[0] * 64}, "", {}, {}, 1.0)
        write_record(stage, record)
        os.utime(stage / "STAGE.json", (begun_s, begun_s))
    os.utime(stage / "journal.jsonl", (begun_s, begun_s))
    return stage


def corpus_of(model: Path, prep: Path | None = None) -> str | None:
    """Of an experiment from `model`."""
    config = ExperimentRunConfig.model_construct(model=model, prep=prep)
    found = prep_folder(config)
    return found.name if found else None


def test_all_commands_use_the_corpus_that_the_newest_pretraining_reads(run: Path) -> None:
    assert find_prep_folder(run).prep.name == f"prep-{B}"
    stage = pretraining(run, "c", A, begun_s=2000, finished=True)
    for folder in (run, stage, stage / "model"):
        assert corpus_of(folder) == f"prep-{A}"
    assert corpus_of(run, prep=run) == f"prep-{A}"
    assert corpus_of(run, prep=run / f"prep-{B}") == f"prep-{B}"
    assert find_prep_folder(run) == PrepFolder(run / f"prep-{A}", run)
    (stage / "prep.json").unlink()  # as earlier versions left it
    assert prep_read_by(stage) == run / f"prep-{A}"
    later = pretraining(run, "d", B, begun_s=3000, finished=False)
    assert find_prep_folder(run).prep.name == f"prep-{B}"
    assert corpus_of(run) == f"prep-{A}", "the newest model's"
    assert prep_read_by(later) == run / f"prep-{B}"


def test_nobody_guesses_which_corpus_a_model_was_pretrained_on(run: Path) -> None:
    stage = pretraining(run, "c", A, begun_s=2000, finished=True)
    for name in ("prep.json", "STAGE.json"):
        (stage / name).unlink()
    assert prep_read_by(stage) is None
    with pytest.raises(UserError, match=rf"several prepared corpora.* prep=FOLDER \(prep-{A}, prep-{B}\)$"):
        corpus_of(run)
    (run / f"prep-{B}" / "manifest.json").unlink()
    assert corpus_of(run) == f"prep-{A}"
    (run / f"prep-{A}" / "manifest.json").unlink()
    assert corpus_of(run) is None


def test_steps_are_not_traced_in_another_corpus_than_they_read(run: Path) -> None:
    pretraining(run, "c", A, begun_s=2000, finished=True)
    with pytest.raises(UserError, match=rf"reads prep-{A}, not prep-{B}: give the run's --out folder"):
        step_lines(find_prep_folder(run / f"prep-{B}"), 0, 0, None)


def test_all_corpora_of_a_model_are_known_from_its_record_or_its_newest_checkpoint(
    run: Path,
) -> None:
    stage = pretraining(run, "c", A, begun_s=2000, finished=True)
    own = str((run / f"prep-{A}").resolve())
    assert corpora_read_by(stage) == pretrained_on(stage / "model") == (own,)
    data = {"own_weight": 0.0, "corpora": [{"location": "s3://bucket/prep"}]}
    for step, part in ((9, {}), (10, {"data": data})):
        checkpoint = stage / "checkpoints" / f"step-{step:08}"
        checkpoint.mkdir(parents=True)
        write_json(checkpoint / "config.json", {"pretrain": part})
    assert corpora_read_by(stage) == (own,), "the record counts"
    (stage / "STAGE.json").unlink()
    assert corpora_read_by(stage) == ("s3://bucket/prep",)
    (run / f"prep-{A}" / "manifest.json").unlink()
    assert corpora_read_by(stage) == ()
    assert pretrained_on(run.parent) == ()
