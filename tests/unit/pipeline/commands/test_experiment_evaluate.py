"""permcode evaluate and predict on a system that was saved in an experiment's folder, without training one."""

import json
import shutil
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import yaml
from pydantic import TypeAdapter
from typer.testing import CliRunner, Result

from data_prep.finished.prepared import PreparedCorpus
from finetune.experiment.kinds import SystemConfig, TaskConfig
from finetune.modalities.base import Source
from finetune.modalities.ranking import RankingData
from finetune.systems.base import Base
from finetune.systems.rankers.lexical import LexicalRanker, LexicalRankerConfig
from finetune.systems.saved import module_of, save_system
from finetune.tasks.token_completion import TokenCompletionConfig
from pipeline.cli import app
from pipeline.run.finetuned import LoadedTask
from pretrain.inference.folders import checked_model
from pretrain.weights import save_model
from tests.example_corpus import stdlib_packages, tiny_model, write_corpus

_SEED = 5
_TASK = {"kind": "text_search", "max_test": 12}
_SYSTEMS = {
    "own": {"kind": "bi_encoder"},
    "bm25": {"kind": "lexical_ranker"},
    "tfidf": {"kind": "lexical_ranker", "method": "tfidf"},
}


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
        "task": _TASK, "systems": _SYSTEMS, "seed": _SEED, "model": str(model), "prep": str(corpus.folder),
    }  # fmt: skip
    (out / "config.yaml").write_text(yaml.safe_dump(config))
    files, description = checked_model(model)
    base = Base(description, corpus.tokenizer, files, torch.device("cpu"))
    task = TypeAdapter[Any](TaskConfig).validate_python(_TASK)
    data = task.build().load(Source(corpus.folder, _SEED))
    for name, values in _SYSTEMS.items():
        system_config = TypeAdapter[Any](SystemConfig).validate_python(values)
        module = module_of(system_config.build(base, data, _SEED))
        folder = out / "text_search-0" / name / f"seed-{_SEED}" / "model"
        stored = system_config.model_dump(mode="json"), task.model_dump(mode="json")
        save_system(folder, *stored, _SEED, [], base, module)
    sizes = {"num_parameters": 0, "num_trained": 0, "steps": 0, "best_step": 0}
    systems = {
        name: {"valid": 0.5 if name == "own" else None, "seeds": [_SEED], **sizes} for name in _SYSTEMS
    }
    summary = {"headline": "mrr", "baseline": "tfidf", "systems": systems}
    (out / "text_search-0" / "result.json").write_text(json.dumps(summary))
    return out


def permcode(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


def test_a_system_is_evaluated_on_the_items_of_its_experiment(
    out: Path, corpus: PreparedCorpus, tmp_path: Path
) -> None:
    done = permcode("evaluate", out, "--output", tmp_path / "rows.jsonl")
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    task = (TypeAdapter[Any](TaskConfig).validate_python(_TASK)).build()
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


def test_all_systems_are_evaluated_together(out: Path, corpus: PreparedCorpus, tmp_path: Path) -> None:
    done = permcode("evaluate", out, "--all", "max_test=9", "--output", tmp_path / "rows.jsonl")

    assert done.exit_code == 0, done.output
    assert "mrr against tfidf" in done.output
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    ranks = {name: [row["ranks"] for row in rows if row["system"] == name] for name in _SYSTEMS}
    assert {name: len(found) for name, found in ranks.items()} == dict.fromkeys(_SYSTEMS, 9)
    assert all(row["seed"] == _SEED for row in rows)
    task = (TypeAdapter[Any](TaskConfig).validate_python(_TASK | {"max_test": 9})).build()
    data = cast(RankingData, task.load(Source(corpus.folder, _SEED)))
    for name in ("bm25", "tfidf"):
        config = LexicalRankerConfig.model_validate(_SYSTEMS[name])
        known = [text for match in data.train for text in (match.query, match.found)]
        scores = LexicalRanker(config, known).scores(data.test.queries, data.test.candidates, lambda _: None)
        wanted = [
            [int((score_C >= score_C[one]).sum()) for one in relevant]
            for score_C, relevant in zip(scores, data.test.relevant, strict=True)
        ]
        assert ranks[name] == wanted
    assert ranks["tfidf"] != ranks["bm25"]


def test_a_system_that_counts_needs_its_training_data_again(out: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(out, moved)
    config = yaml.safe_load((moved / "config.yaml").read_text())
    (moved / "config.yaml").write_text(yaml.safe_dump(config | {"prep": str(tmp_path / "gone")}))

    for arguments in ((moved, "--all"), (moved / "text_search-0" / "bm25" / f"seed-{_SEED}",)):
        done = permcode("evaluate", *arguments)
        assert done.exit_code == 2, done.output
        (line,) = done.stderr.splitlines()
        assert "prep" in line
        assert "gone" in line


def test_a_system_that_counts_predicts(out: Path, tmp_path: Path) -> None:
    rows = [{"query": "mean of data", "candidate": text} for text in ("def mean(data): ...", "x = 1")]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    system = out / "text_search-0" / "tfidf" / f"seed-{_SEED}"

    done = permcode("predict", system, "--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl")

    assert done.exit_code == 0, done.output
    near, far = (json.loads(line)["prediction"] for line in (tmp_path / "out.jsonl").read_text().splitlines())
    assert near > far == 0.0


@pytest.mark.parametrize(
    ("place", "expected"),
    [("nowhere", "holds no finished experiment"), ("text_search-0/own", "holds no finished experiment")],
)
def test_all_wants_an_experiment(out: Path, place: str, expected: str) -> None:
    done = permcode("evaluate", out / place, "--all")
    assert done.exit_code == 2, done.output
    assert expected in done.stderr


@pytest.mark.parametrize("of_all", [[], ["--all"]])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["max_test=0"], "max_test"),
        (["kind=humaneval"], "the system was finetuned for text_search"),
        (["test=nowhere.jsonl", "folder=/nowhere"], "/nowhere/nowhere.jsonl"),
        (["--prep", "/nowhere"], "prep=/nowhere is not a finished prep folder"),
        (["bleu=1"], "bleu"),
        (["decoding.beam=2"], "decod"),
    ],
)
def test_unusable_data_is_reported_in_one_line(
    out: Path, tmp_path: Path, given: list[str], expected: str, of_all: list[str]
) -> None:
    output = tmp_path / "rows.jsonl"
    done = permcode("evaluate", out, *of_all, *given, "--output", output)
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    assert expected in line
    assert not output.exists()


def test_a_damaged_config_of_the_experiment_is_reported_in_one_line(out: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(out, damaged)
    (damaged / "config.yaml").write_text("task: [")
    done = permcode("evaluate", damaged)
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    assert "config.yaml is damaged" in line


def test_an_unusable_output_is_reported_before_anything_is_computed(out: Path, tmp_path: Path) -> None:
    given = tmp_path / "in.jsonl"
    given.write_text(json.dumps({"query": "a", "candidate": "b"}) + "\n")
    output = given / "below" / "a_file.jsonl"
    done = permcode("predict", out, "--input", given, "--output", output)
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    assert f"--output {output}: {given} is a file" in line
    assert "predict" not in done.stdout


@pytest.mark.parametrize("of_all", [[], ["--all"]])
def test_the_test_file_is_not_overwritten(out: Path, tmp_path: Path, of_all: list[str]) -> None:
    test_file = tmp_path / "test.jsonl"
    test_file.write_text(
        json.dumps({"query": "adds two numbers", "code": "def add(a, b): return a + b"}) + "\n"
    )
    before = test_file.read_bytes()
    done = permcode("evaluate", out, *of_all, f"folder={tmp_path}", "test=test.jsonl", "--output", test_file)
    assert done.exit_code == 2, done.output
    assert f"--output {test_file} is the file that is read" in done.stderr
    assert test_file.read_bytes() == before


def test_another_folder_needs_no_training_or_validation_files(tmp_path: Path) -> None:
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.txt").write_text("x = 1\n")
    others = tmp_path / "others"
    others.mkdir()
    for name in ("dev", "test"):
        (others / f"{name}.txt").write_text("y = 2\n")
    trained = TokenCompletionConfig(folder=tmp_path, train="train.txt", valid="dev.txt", test="test.txt")
    loaded_task = LoadedTask.load(trained, [f"folder={others}"], Source(None, 0))
    assert [one.text for one in loaded_task.data.test] == ["y = 2"]


def test_only_decoding_can_be_set_for_predictions(out: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    done = permcode("predict", out, "max_test=3", "--input", tmp_path / "in.jsonl", "--output", output)
    assert done.exit_code == 2
    assert "max_test=3: only keys of decoding can be set here" in done.stderr
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
    ("text", "expected"),
    [
        ("", "empty"),
        ('{"query": "a"}\n', "'candidate'"),
        ('{"query": "a", "candidate": null}\n', "row 1 has no text in 'candidate'"),
        ("query,candidate\na,b\n", "JSON"),
        ("\x00\xff", "not UTF-8"),
    ],
)
def test_unreadable_rows_are_reported_in_one_line(
    out: Path, tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "in.jsonl").write_bytes(text.encode("latin-1"))
    done = permcode("predict", out, "--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl")
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    assert expected in line
    assert not (tmp_path / "out.jsonl").exists()


def test_a_task_of_a_folder_is_named_by_its_name_or_kind(out: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(out, run)
    (run / "text_search-0").rename(run / "find-0123456789ab")
    shutil.copytree(run / "find-0123456789ab", run / "other-0123456789ab")
    summary = {
        "stage": "find",
        "key": "0",
        "version": 1,
        "config": {"task": _TASK},
        "inputs": {},
        "signature": "",
    }
    record = {**summary, "files": {}, "summary": {}, "wall_s": 1.0, "format": 1, "finished_at": ""}
    (run / "find-0123456789ab" / "STAGE.json").write_text(json.dumps(record))
    given, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    given.write_text(json.dumps({"query": "a", "candidate": "b"}) + "\n")

    for name in ("find", "text_search"):
        assert permcode("evaluate", run, "--task", name).exit_code == 0
        assert permcode("evaluate", run, "--task", name, "--all").exit_code == 0
        assert permcode("predict", run, "--task", name, "-i", given, "-o", output).exit_code == 0
    lines = {
        "evaluate": permcode("evaluate", run),
        "all": permcode("evaluate", run, "--all"),
        "predict": permcode("predict", run, "-i", given, "-o", output),
    }
    for done in lines.values():
        assert done.exit_code == 2
        assert "holds several tasks: give --task with one of find, other" in done.stderr
    nothing = permcode("complete", run, "--task", "serach", "def")
    assert nothing.exit_code == 2
    assert "has no finished task 'serach': there are find, other" in nothing.stderr


def test_a_key_of_evaluate_given_twice_is_refused(out: Path) -> None:
    done = permcode("evaluate", out, "max_test=3", "task.max_test=4")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "max_test is given twice (3 and 4)" in done.stderr
