"""What an experiment says of texts that were cut: of the test split, whatever else the system was asked."""

from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.storage import read_json
from data_prep.finished.prepared import PreparedCorpus
from finetune.experiment import jobs
from finetune.experiment.config import ExperimentConfig
from finetune.experiment.job import Job
from finetune.experiment.jobs import JobContext, run_job
from finetune.modalities.labelling import Labelled, LabellingData, LabellingEvaluation
from finetune.systems.writers.aligned_rnn import AlignedRnnConfig
from pretrain.health.stop import StopRequest
from tests.unit.finetune.systems.toys import toy_base

_LONG, _SHORT = "def total(items):\n    return sum(items)\n", "x"


def test_pictures_and_changed_texts_are_not_among_them(
    pretrain_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corpus: PreparedCorpus
) -> None:
    monkeypatch.setattr(jobs.dist, "get_rank", lambda: 0)
    monkeypatch.setattr(jobs, "agreed", lambda look: look())
    monkeypatch.setattr(AlignedRnnConfig, "learns", False)  # tested as it was made
    monkeypatch.setattr(jobs, "save_job", lambda *arguments: None)
    for side in ("old", "new"):
        (tmp_path / f"data.{side}").write_text("\n".join(["a b c d e f g h"] * 11 + ["a"]) + "\n")
    task: dict[str, Any] = dict.fromkeys(("train", "valid", "test"), "data.{side}")
    config = ExperimentConfig.model_validate(
        {
            "task": {"kind": "translation", "folder": tmp_path, "source": "old", "target": "new", **task},
            "systems": {"rnn": {"kind": "aligned_rnn", "source_tokens": 3, "target_tokens": 2}},
        }
    )
    context = JobContext.open(config, pretrain_folder, None, torch.device("cpu"))
    job = Job("rnn", 0, tmp_path / "job")
    assert run_job(job, context, StopRequest(tmp_path, looks_for_file=True)) is True
    assert len(list((job.folder / "alignments").glob("*.svg"))) == 8
    cut = read_json(job.result)["cut"]
    assert cut["written_sources"] == 11
    assert cut["written_texts"] > 0, "an untrained network hardly ends a text of two tokens"


def test_texts_that_a_threshold_was_chosen_by_are_not_among_them(corpus: PreparedCorpus) -> None:
    task_config = {"kind": "clone_pairs", "folder": "nowhere", "train": None, "valid": None}
    config = ExperimentConfig.model_validate(
        {"task": task_config, "systems": {"one": {"kind": "classifier", "text_tokens": 4}}}
    )
    items = [Labelled(str(n), (_LONG, _SHORT), n % 2) for n in range(10)]
    data = LabellingData(items[:4], items, items[:3])
    system = config.systems["one"].build(toy_base(corpus.tokenizer), data, seed=0)
    assert system.learner is not None
    system.learner.module.eval()
    evaluation = LabellingEvaluation(config.task.build(), data, valid_items=10)
    answers = [evaluation.test(system, lambda done: None) for _ in range(2)]
    assert answers[0].threshold is not None
    assert [one.cut["texts"] for one in answers] == [3, 3]
