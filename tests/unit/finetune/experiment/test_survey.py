"""An experiment looked over: items counted, systems described, of every kind of task; nothing is left behind."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from finetune.experiment.config import ExperimentConfig
from finetune.experiment.preflight import survey

_TRAINING = {"steps": 20, "warmup_steps": 2, "batch_tokens": 64}


def config(task: dict[str, Any], **systems: dict[str, Any]) -> ExperimentConfig:
    return ExperimentConfig.model_validate({"task": task, "systems": systems, "training": _TRAINING})


def test_writing(pretrain_folder: Path, corpus: PreparedCorpus) -> None:
    given = config(
        {"kind": "generation", "language": "python", "max_train": 20, "max_test": 9},
        constant={"kind": "constant"},
        own={"kind": "permutation_lm", "source_tokens": 8, "target_tokens": 4, "adaptation": "lora"},
    )
    items, constant, own = survey(given, pretrain_folder, corpus.folder)
    assert items.startswith("items: 20 for training, ")
    assert "9 for the test" in items
    assert constant == "constant: nothing to train"
    counts = own.removeprefix("own: ").split("; ")
    assert counts[1:] == ["20 steps of 64 tokens", "20 train sources cut", "20 train targets cut"]
    parameters, trained = (int(part.split()[0].replace(",", "")) for part in counts[0].split(", "))
    assert 0 < trained < parameters


def test_ranking(pretrain_folder: Path, corpus: PreparedCorpus) -> None:
    given = config({"kind": "text_search"}, words={"kind": "lexical_ranker"}, own={"kind": "bi_encoder"})
    items, words, own = survey(given, pretrain_folder, corpus.folder)
    assert int(items.split(" for the test")[0].rpartition(" ")[2].replace(",", "")) > 10
    assert words == "words: nothing to train"
    assert "20 steps of 64 tokens" in own


def test_labelling(pretrain_folder: Path, tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        rows = [{"func": f"int f{n}() {{ return {n}; }}", "target": n % 2} for n in range(6)]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = config({"kind": "defect", "folder": tmp_path}, own={"kind": "classifier"})
    before = sorted(tmp_path.iterdir())
    items, own = survey(given, pretrain_folder, None)
    assert items.startswith("items: 6 for training, 6 for validation, 6 for the test")
    assert "parameters" in own
    assert sorted(tmp_path.iterdir()) == before
    (tmp_path / "test.jsonl").write_text('{"func": "x", "target": "?"}\n')
    with pytest.raises(UserError, match=r"test.jsonl"):
        survey(given, pretrain_folder, None)
