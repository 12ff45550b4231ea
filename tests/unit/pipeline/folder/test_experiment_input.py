"""What permcode finetune --from and its companions say to bad input: one line each, before anything is started."""

import socket
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from typer.testing import CliRunner

from pipeline.cli import app
from pretrain.weights import save_model
from tests.example_corpus import stdlib_packages, tiny_model, write_corpus


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    corpus = write_corpus(folder / "prep", {"train": stdlib_packages(["string"])})
    save_model(tiny_model(corpus.tokenizer.vocab_size), folder / "model", corpus.folder / "tokenizer.json")
    return folder / "model"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    for split in ("train", "valid", "test"):
        for side in ("old", "new"):
            (data / f"{split}.{side}").write_text("one\ntwo\n")
    sides = {split: f"{split}.{{side}}" for split in ("train", "valid", "test")}
    values: dict[str, Any] = {
        "task": {"kind": "translation", "folder": str(data), "source": "old", "target": "new", **sides},
        "systems": {"copy": {"kind": "copy"}, "own": {"kind": "permutation_lm"}},
        "training": {"steps": 12, "warmup_steps": 2},
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def refused(*arguments: str) -> str:
    """The one line on stderr of a command that ends with exit code 2."""
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 2, done.output
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["systems.find={kind: bi_encoder}"], "systems.find: bi_encoder can rank"),
        (["systems.own.kind=rnn"], "systems.own"),
        (["systems.own.beam=4"], "unknown key systems.own.beam = 4: did you mean"),
        (
            ["systems.pretrained={kind: permutation_lm, sorce_tokens: 3}"],
            "did you mean systems.pretrained.source_tokens?",
        ),
        (["systems.own=null", "systems.copy=null"], "systems"),
        (["baseline=nobody"], "'nobody' is none of the systems copy, own"),
        (["training_of={nobody: {}}"], "'nobody' is none of the systems copy, own"),
        (["training_of={own: {steps: 0}}"], "steps"),
        (["training_of={own: {step: 5}}"], "step"),
        (["systems={a/b: {kind: copy}}"], "a/b"),
        (["task.test=missing.{side}"], "missing.old"),
        (["task.folder=/nowhere"], "/nowhere"),
        (["training.warmup_steps=12"], "warmup_steps=12"),
        (["training.num_workers=2"], "num_workers=2"),
        (["seed=-1"], "seed"),
        (["systems={}"], "systems"),
        (["prep=/nowhere"], "prep=/nowhere"),
        (["robustness.transforms=[shout]"], "robustness.transforms"),
        (["task={kind: humaneval, max_test: 3}"], "problems"),
        (["task={kind: humaneval, folder: data}"], "folder"),
        (
            ["task={kind: cloze, words: [min, max]}", "systems={own: {kind: zero_shot_cloze}}"],
            "systems.own: its words (max, min) are not the task's (min, max)",
        ),
    ],
)
def test_a_wrong_setting_is_named_and_nothing_is_left(
    model: Path, recipe: Path, tmp_path: Path, overrides: list[str], expected: str
) -> None:
    out = tmp_path / "out"
    line = refused("finetune", "--recipe", str(recipe), "--from", str(model), "--out", str(out), *overrides)
    assert expected in line
    assert not out.exists()


def test_data_that_cannot_be_used_are_named_before_anything_is_started(
    model: Path, recipe: Path, tmp_path: Path
) -> None:
    (tmp_path / "data" / "train.new").write_text("one\n")
    out = tmp_path / "out"
    line = refused("finetune", "--recipe", str(recipe), "--from", str(model), "--out", str(out))
    assert f"train.old has 2 lines but {tmp_path}" in line
    assert not out.exists()
    assert not ray.is_initialized()


def test_seeds_are_of_an_experiment(tmp_path: Path) -> None:
    line = refused("finetune", "--recipe", "smoke", "--out", str(tmp_path / "out"), "--seeds", "2")
    assert "--seeds" in line
    assert "--from" in line


def test_a_folder_that_holds_nothing_to_use_is_named(recipe: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    given = ["--recipe", str(recipe), "--from", str(empty), "--out", str(tmp_path / "out")]
    assert f"{empty} holds no model" in refused("finetune", *given)
    assert f"{empty} holds no finetuned system" in refused("predict", str(empty), "-i", "x", "-o", "y")
    assert f"{empty} holds no finetuned system" in refused("evaluate", str(empty))
    assert f"no finished experiment in {empty}" in refused("leaderboard", str(empty))
    assert f"{empty} holds no mlflow.db" in refused("serve", str(empty))
    assert "is not a folder" in refused("leaderboard", str(tmp_path / "nowhere"))


def test_a_file_that_cannot_be_written_is_named_before_anything_is_computed(tmp_path: Path) -> None:
    given = tmp_path / "in.jsonl"
    given.write_text('{"text": "a"}\n')
    nowhere = str(tmp_path / "nowhere")
    assert f"--output {given} is the file that is read" in refused(
        "predict", nowhere, "-i", str(given), "-o", str(given)
    )
    assert f"{tmp_path} is a folder" in refused("predict", nowhere, "-i", str(given), "-o", str(tmp_path))
    assert f"{tmp_path} is a folder" in refused("evaluate", nowhere, "-o", str(tmp_path))
    assert f"{tmp_path} is a folder" in refused("leaderboard", nowhere, "--html", str(tmp_path))


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused("serve", str(tmp_path), "--port", str(port))
    assert f"cannot listen on 127.0.0.1:{port}" in line


def test_the_plan_is_shown_without_doing_it(model: Path, recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = ["--recipe", str(recipe), "--from", str(model), "--out", str(out), "--dry-run"]
    done = CliRunner().invoke(app, ["finetune", *given, "--seeds", "3"])
    assert done.exit_code == 0, done.output
    assert "num_seeds: 3" in done.stdout
    shown = " ".join(done.stdout.split())
    assert "translation run" in shown
    assert "items: 2 for training, 2 for validation, 2 for the test; 2 test targets in train" in shown
    assert "copy: nothing to train" in shown
    assert "12 steps of" in shown
    assert not out.exists()


def test_the_plan_is_not_shown_of_data_that_cannot_be_used(model: Path, recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "data" / "test.new").write_text("one\n")
    out = tmp_path / "out"
    given = ["--recipe", str(recipe), "--from", str(model), "--out", str(out), "--dry-run"]
    assert "test.new" in refused("finetune", *given)
    assert not out.exists()
