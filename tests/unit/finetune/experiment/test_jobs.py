"""A job that is evaluated: its progress is in the journal, it can be stopped and evaluated again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.journal import read_journal
from cluster.storage import read_json
from data_prep.finished.prepared import PreparedCorpus
from finetune.experiment import jobs
from finetune.experiment.config import ExperimentConfig
from finetune.experiment.job import Job
from finetune.experiment.jobs import JobContext, run_job
from pretrain.files import PretrainFiles
from pretrain.health.stop import StopRequest


@pytest.fixture
def context(
    pretrain_folder: Path, corpus: PreparedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> JobContext:
    """For one worker, without a process group."""
    monkeypatch.setattr(jobs.dist, "get_rank", lambda: 0)
    monkeypatch.setattr(jobs, "agreed", lambda look: look())
    monkeypatch.setattr(jobs, "WRITE_EVERY_S", 0.0)
    for split in ("train", "valid", "test"):
        for side in ("old", "new"):
            (tmp_path / f"{split}.{side}").write_text("".join(f"{side} {number}\n" for number in range(40)))
    task: dict[str, Any] = {split: split + ".{side}" for split in ("train", "valid", "test")}
    config = ExperimentConfig.model_validate(
        {
            "task": {"kind": "translation", "folder": tmp_path, "source": "old", "target": "new", **task},
            "systems": {"nearest": {"kind": "nearest"}},
        }
    )
    return JobContext.open(config, pretrain_folder, None, torch.device("cpu"))


def test_an_evaluation_that_is_stopped_leaves_nothing_and_is_done_again(
    context: JobContext, tmp_path: Path
) -> None:
    job, stop = Job("nearest", 0, tmp_path / "job"), StopRequest(tmp_path, looks_for_file=True)
    (tmp_path / PretrainFiles.STOP).touch()
    assert run_job(job, context, stop) is False
    assert [path.name for path in job.folder.iterdir()] == ["journal.jsonl"]
    (tmp_path / PretrainFiles.STOP).unlink()
    assert run_job(job, context, stop) is True
    assert read_json(job.result)["metrics"]["bleu"]["num_items"] == 40
    texts = [
        record.text
        for record in read_journal(job.folder / "journal.jsonl")
        if record.name == "test_evaluation"
    ]
    assert texts[:2] == ["evaluating the test split"] * 2, "once for each time"
    assert texts[-1] == "evaluating the test split, 40 of 40 items"


def test_items_seen_in_pretraining_are_also_left_out_of_the_headline(
    context: JobContext, tmp_path: Path
) -> None:
    job, stop = Job("nearest", 0, tmp_path / "job"), StopRequest(tmp_path, looks_for_file=True)
    assert run_job(job, replace(context, overlapping=frozenset({1, 4, 7})), stop) is True
    metrics = read_json(job.result)["metrics"]
    assert metrics["bleu_unseen"]["num_items"] == 37
    assert next(iter(metrics)) == "bleu"
