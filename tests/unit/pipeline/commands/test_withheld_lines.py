"""permcode evaluate on line completion whose answers are withheld, as those of CodeXGLUE's test files are."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from pydantic import TypeAdapter
from typer.testing import CliRunner

from finetune.experiment.kinds import SystemConfig, TaskConfig
from finetune.systems.base import Base
from finetune.systems.saved import save_system
from pipeline.cli import app
from pretrain.inference.folders import checked_model
from pretrain.weights import save_model
from tests.example_corpus import stdlib_packages, tiny_model, write_corpus

_TASK = {"kind": "line_completion", "max_train": 20, "max_test": 5}
_NGRAM = {"kind": "ngram"}


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An n-gram in an experiment's folder as far as `evaluate` looks into it."""
    splits = {"train": ["string"], "validation": ["textwrap"], "test": ["heapq"]}
    prep, out = tmp_path_factory.mktemp("prep"), tmp_path_factory.mktemp("out")
    corpus = write_corpus(prep, {split: stdlib_packages(names) for split, names in splits.items()})
    model = out / "base" / "model"
    save_model(tiny_model(corpus.tokenizer.vocab_size), model, prep / "tokenizer.json")
    config = {"task": _TASK, "systems": {"ngram": _NGRAM}, "model": str(model), "prep": str(prep)}
    (out / "config.yaml").write_text(yaml.safe_dump(config))
    files, description = checked_model(model)
    base = Base(description, corpus.tokenizer, files, torch.device("cpu"))
    stored = [
        TypeAdapter[Any](kinds).validate_python(values).model_dump(mode="json")
        for kinds, values in ((SystemConfig, _NGRAM), (TaskConfig, _TASK))
    ]
    folder = out / "line_completion-0" / "ngram" / "seed-0"
    save_system(folder / "model", *stored, 0, [], base, None)
    return folder


def _evaluate(system: Path, folder: Path, target: str) -> tuple[int, str]:
    rows = [{"input": "<s> x =", "gt": target}] * 2
    (folder / "test.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = CliRunner().invoke(app, ["evaluate", str(system), f"folder={folder}", "test=test.json"])
    return done.exit_code, done.output


def test_withheld_answers_end_in_one_line(system: Path, tmp_path: Path) -> None:
    code, said = _evaluate(system, tmp_path, "<NUM_LIT:0> ;")
    assert code == 0, said
    assert "exact_match" in said
    code, said = _evaluate(system, tmp_path, "")
    assert code == 2
    [line] = [line for line in said.splitlines() if "error" in line]
    assert line.startswith(
        f"permcode: error: {tmp_path}/test.json: 2 of 2 items (first test-1) have an empty target"
    )
    assert "its labels are withheld" in line
