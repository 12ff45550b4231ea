"""permcode evaluate and predict on a system that was saved in an experiment's folder, without training one."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from pydantic import TypeAdapter
from typer.testing import CliRunner, Result

from data_prep.prepared import PreparedCorpus
from finetune.experiment.choices import TaskConfig, build_system, task_of
from finetune.systems.base import Base
from finetune.systems.rankers.bi_encoder import BiEncoderConfig
from finetune.systems.saved import module_of, save_system
from finetune.tasks.base import Source
from pipeline.cli import app
from pretrain.inference.folders import checked_model
from pretrain.weights import save_model
from tests.example_corpus import stdlib_packages, tiny_model, write_corpus

_SEED = 5
_TASK = {"kind": "text_search", "max_test": 12}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    splits = {"train": ["string"], "validation": ["argparse", "textwrap"], "test": ["statistics", "tarfile"]}
    folder = tmp_path_factory.mktemp("prep")
    return write_corpus(folder, {split: stdlib_packages(names) for split, names in splits.items()})


@pytest.fixture(scope="module")
def out(corpus: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment's folder as far as the commands look into it."""
    model = tmp_path_factory.mktemp("base") / "model"
    save_model(tiny_model(corpus.tokenizer.vocab_size), model, corpus.folder / "tokenizer.json")
    out = tmp_path_factory.mktemp("out")
    config: dict[str, Any] = {
        "task": _TASK, "systems": {"own": {"kind": "bi_encoder"}}, "seed": _SEED, "model": str(model),
        "prep": str(corpus.folder),
    }  # fmt: skip
    (out / "config.yaml").write_text(yaml.safe_dump(config))
    files, description = checked_model(model)
    base = Base(description, corpus.tokenizer, files, torch.device("cpu"))
    task = TypeAdapter[Any](TaskConfig).validate_python(_TASK)
    system_config = BiEncoderConfig()
    system = build_system(system_config, base, task_of(task).load(Source(corpus.folder, _SEED)), _SEED)
    folder = out / "text_search-0" / "own" / f"seed-{_SEED}" / "model"
    save_system(
        folder,
        system_config.model_dump(mode="json"),
        task.model_dump(mode="json"),
        _SEED,
        [],
        base,
        module_of(system),
    )
    summary = {
        "systems": {"own": {"valid": 0.5, "seeds": [_SEED]}, "bm25": {"valid": None, "seeds": [_SEED]}}
    }
    (out / "text_search-0" / "result.json").write_text(json.dumps(summary))
    return out


def permcode(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


def test_a_system_is_judged_on_the_items_of_its_experiment(
    out: Path, corpus: PreparedCorpus, tmp_path: Path
) -> None:
    done = permcode("evaluate", out, "--output", tmp_path / "rows.jsonl")
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    task = task_of(TypeAdapter[Any](TaskConfig).validate_python(_TASK))
    wanted = task.load(Source(corpus.folder, _SEED)).test.queries  # type: ignore[union-attr]
    others = task.load(Source(corpus.folder, _SEED + 1)).test.queries  # type: ignore[union-attr]
    assert [row["query"] for row in rows] == list(wanted)
    assert list(wanted) != list(others), "the seed plays no part: this shows nothing"
    assert "mrr" in done.output


def test_another_corpus_can_be_named(out: Path, corpus: PreparedCorpus, tmp_path: Path) -> None:
    model = next(out.glob("*/own/*/model"))
    alone = tmp_path / "model"
    alone.mkdir()
    for path in model.iterdir():
        (alone / path.name).write_bytes(path.read_bytes())
    done = permcode("evaluate", alone, "max_test=3")
    assert done.exit_code == 2
    assert "text search needs a test file or a prepared corpus" in done.stderr
    done = permcode("evaluate", alone, "max_test=3", "--prep", corpus.folder)
    assert done.exit_code == 0, done.output
    assert "3 items" in done.output


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["max_test=0"], "max_test"),
        (["kind=humaneval"], "the system was finetuned for text_search"),
        (["test=nowhere.jsonl", "folder=/nowhere"], "/nowhere/nowhere.jsonl"),
        (["--prep", "/nowhere"], "prep=/nowhere is no finished prep folder"),
        (["bleu=1"], "bleu"),
        (["decoding.beam=2"], "decoding.beam: the system bi_encoder does not decode anything"),
    ],
)
def test_data_that_cannot_be_used_is_told_in_one_line(
    out: Path, tmp_path: Path, given: list[str], told: str
) -> None:
    output = tmp_path / "rows.jsonl"
    done = permcode("evaluate", out, *given, "--output", output)
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    assert told in line
    assert not output.exists()


def test_only_decoding_can_be_set_for_predictions(out: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    done = permcode("predict", out, "max_test=3", "--input", tmp_path / "in.jsonl", "--output", output)
    assert done.exit_code == 2
    assert "max_test=3: what can be set here are keys of decoding" in done.stderr
    assert not output.exists()


def test_rows_get_predictions(out: Path, tmp_path: Path) -> None:
    rows = [{"query": "mean of data", "candidate": "def mean(data): ..."}, {"query": "a", "candidate": "b"}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = permcode("predict", out, "--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl")
    assert done.exit_code == 0, done.output
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [{name: one[name] for name in ("query", "candidate")} for one in answers] == rows
    assert all(-1.01 < one["prediction"] < 1.01 for one in answers)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ('{"query": "a"}\n', "'candidate'"),
        ('{"query": "a", "candidate": null}\n', "row 1 has no text in 'candidate'"),
        ("query,candidate\na,b\n", "JSON"),
        ("\x00\xff", "not UTF-8"),
    ],
)
def test_rows_that_cannot_be_read_are_told_in_one_line(
    out: Path, tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "in.jsonl").write_bytes(text.encode("latin-1"))
    done = permcode("predict", out, "--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl")
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    assert told in line
    assert not (tmp_path / "out.jsonl").exists()
