"""One command from source trees to tracked finetunes, then what a user does next."""

import json
import resource
import sqlite3
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from cluster.local_ray import make_private_temp_folder
from tests.integration.shown_figures import (
    figures_in_mlflow,
    figures_in_report,
    figures_in_results,
    figures_in_status,
    figures_in_table,
)
from tests.integration.smoke_run import command, copy_corpus, only, run

_AGAIN_CPU_S = 10
"""Three and a half seconds were measured, most of it imports; one training takes ten more."""


def _cpu_s_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_corpus(tmp_path_factory.mktemp("corpus"))


@dataclass
class Seen:
    """What others on the machine could see of a run while it worked."""

    listening: set[tuple[str, str]] = field(default_factory=set)
    """Name and address of every process that takes connections."""
    ray_folder_modes: set[int] = field(default_factory=set)

    def look(self, run: psutil.Process) -> None:
        for process in (run, *run.children(recursive=True)):
            with suppress(psutil.Error):
                for one in process.net_connections("inet"):
                    if one.status == psutil.CONN_LISTEN:
                        self.listening.add((process.name(), one.laddr.ip))
        with suppress(FileNotFoundError):
            self.ray_folder_modes.add(stat.S_IMODE(make_private_temp_folder().parent.lstat().st_mode))


@pytest.fixture(scope="module")
def watched(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, Seen]:
    """The folder of a finished run, what the command printed, and what was seen of it."""
    out = tmp_path_factory.mktemp("runs") / "smoke"
    seen = Seen()
    return out, run(command("run", out, corpus), look=seen.look).stdout, seen


@pytest.fixture(scope="module")
def finished(watched: tuple[Path, str, Seen]) -> tuple[Path, str]:
    """The folder of a finished run, and what the command printed."""
    return watched[0], watched[1]


@contextmanager
def flipped_bit(path: Path, offset: int) -> Iterator[None]:
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[offset] ^= 1
    path.write_bytes(damaged)
    try:
        yield
    finally:
        path.write_bytes(whole)


def test_every_stage_leaves_a_record_and_the_report_stands_alone(finished: tuple[Path, str]) -> None:
    out, printed = finished
    for stage in ("prep", "pretrain", "completion", "search", "report"):
        record = json.loads((only(out, f"{stage}-*") / "STAGE.json").read_text())
        assert record["summary"], stage
    html = (out / "report.html").read_text()
    assert html.count("<svg") >= 4
    assert 'src="http' not in html
    assert "mlflow ui --backend-store-uri sqlite:///" in printed
    assert "unigram" in printed
    assert "bigram" in printed


def test_a_run_on_one_machine_listens_on_loopback_only(watched: tuple[Path, str, Seen]) -> None:
    _, _, seen = watched
    names = {name for name, _ in seen.listening}
    # The training workers, too: Gloo takes connections.
    assert names >= {"gcs_server", "raylet"}, names
    assert any("RayTrainWorker" in name for name in names), names
    assert {address.removeprefix("::ffff:") for _, address in seen.listening} == {"127.0.0.1"}, seen.listening


def test_what_ray_writes_lies_in_a_folder_closed_to_others(watched: tuple[Path, str, Seen]) -> None:
    assert watched[2].ray_folder_modes == {0o700}


def test_mlflow_has_the_parent_the_children_and_every_step_once(finished: tuple[Path, str]) -> None:
    out, _ = finished
    with sqlite3.connect(out / "mlflow.db") as store:
        runs = dict(store.execute("select run_uuid, status from runs"))
        steps: dict[str, list[int]] = {}
        for name, step in store.execute(
            "select name, step from metrics natural join runs where key = 'grad_norm' order by step"
        ):
            steps.setdefault(name, []).append(step)
        keys = {row[0] for row in store.execute("select key from metrics")}
        parents = list(store.execute("select value from tags where key = 'mlflow.parentRunId'"))
    store.close()
    assert "pretrain.validation.model_bits_per_byte" in keys
    assert {"completion.systems.ngram.headline", "search.systems.pretrained.headline"} <= keys
    assert set(runs.values()) == {"FINISHED"}
    assert len(parents) >= 4
    assert all(parent in runs for (parent,) in parents)
    assert steps == {
        "pretrain": list(range(1, 13)),
        **{
            f"{task}-{system}-seed-0": [1, 2, 3, 4]
            for task in ("completion", "search")
            for system in ("pretrained", "scratch")
        },
    }
    assert list(out.glob("mlartifacts/**/model.safetensors"))
    assert list(out.glob("mlartifacts/**/report.html"))
    assert list(out.glob("mlartifacts/**/config.yaml"))


def test_figures_of_one_label_agree_wherever_they_are_shown(finished: tuple[Path, str]) -> None:
    out, printed = finished
    status = run([sys.executable, "-m", "pipeline.cli", "status", str(out)]).stdout
    by_place = {
        "table": figures_in_table(printed),
        "status": figures_in_status(status),
        "report": figures_in_report((out / "report.html").read_text()),
        "MLflow": figures_in_mlflow(out),
        "result.json": figures_in_results(out),
    }
    values = {
        label: {place: found[label] for place, found in by_place.items() if label in found}
        for found in by_place.values()
        for label in found
    }
    assert {label: found for label, found in values.items() if len(set(found.values())) > 1} == {}
    for label, num_places in (
        ("final validation", 5),
        ("validation in training", 4),
        ("speed of steps", 4),
        ("overall speed", 4),
        ("goodput of pretraining", 4),
        ("completion: accuracy", 4),
        ("search: mrr", 4),
    ):
        assert len(values[label]) == num_places, (label, values[label])


def test_its_books_balance_and_its_status_is_shown(finished: tuple[Path, str]) -> None:
    out, _ = finished
    permcode = [sys.executable, "-m", "pipeline.cli"]
    books = run([*permcode, "audit", str(out), "--read"]).stdout
    assert "read again      12 steps" in books
    assert "the books balance" in books
    status = json.loads(run([*permcode, "status", str(out), "--json"]).stdout)
    assert status["state"] == "finished"


def test_a_task_s_systems_are_evaluated_again_and_used_as_an_experiment_s(
    finished: tuple[Path, str], tmp_path: Path
) -> None:
    out, _ = finished
    permcode = [sys.executable, "-m", "pipeline.cli"]
    search = only(out, "search-*")
    mrr = json.loads((search / "result.json").read_text())["systems"]["tfidf"]["headline"]
    printed = run([*permcode, "evaluate", str(search), "--all"]).stdout
    assert f"{mrr:.4g} (" in printed, "the same corpus, found from the run's config"
    rows, answers = tmp_path / "rows.jsonl", tmp_path / "answers.jsonl"
    rows.write_text('{"text": "x = 1"}\n')
    run([*permcode, "predict", str(only(out, "completion-*")), "-i", str(rows), "-o", str(answers)])
    assert json.loads(answers.read_text())["tokens"] == ["x", "=", "1"]
    error = run([*permcode, "evaluate", str(out)], expect=2).stderr
    assert "holds several tasks: give --task with one of completion, search" in error


def test_again_nothing_is_computed(finished: tuple[Path, str], corpus: Path) -> None:
    out, _ = finished
    before = {path: path.stat().st_mtime_ns for path in out.glob("*-*/**/*") if path.is_file()}
    before_s = _cpu_s_of_children()
    printed = run(command("run", out, corpus)).stdout
    assert _cpu_s_of_children() - before_s < _AGAIN_CPU_S
    assert printed.count("skipped") == 5
    assert {path: path.stat().st_mtime_ns for path in out.glob("*-*/**/*") if path.is_file()} == before


def test_another_config_is_refused_by_key(finished: tuple[Path, str], corpus: Path) -> None:
    out, _ = finished
    error = run(command("run", out, corpus, "pretrain.num_steps=13"), expect=2).stderr
    assert "pretrain.num_steps" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("pattern", ["prep-*/shards/train-00000.tar", "prep-*/tokenizer.json"])
def test_damage_since_it_was_written_is_named(finished: tuple[Path, str], corpus: Path, pattern: str) -> None:
    out, _ = finished
    path = only(out, pattern)
    with flipped_bit(path, path.stat().st_size // 2):
        error = run(command("pretrain", out, corpus), expect=2).stderr
    assert path.name in error
    assert error.count("\n") == 1
    run(command("pretrain", out, corpus))


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["prep.source.path=/nowhere/at/all"], "/nowhere/at/all"),
        (["prep.filters.min_file_bytes=900000"], "file_size"),
        (["pretrain.modle.num_layers=3"], "pretrain.modle"),
        (["pretrain.num_steps=many"], "pretrain.num_steps"),
        (["pretrain.lanes=3"], "lanes=3"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    corpus: Path, tmp_path: Path, overrides: list[str], expected: str
) -> None:
    out = tmp_path / "run"
    error = run(command("prep", out, corpus, *overrides), expect=2).stderr
    assert expected in error
    assert error.count("\n") == 1
    assert "Traceback" not in error
    assert not out.exists()


def test_a_task_s_best_system_is_registered_once_if_configured(
    finished: tuple[Path, str], corpus: Path
) -> None:
    out, printed = finished
    assert "registry:" not in printed
    registering = command("run", out, corpus, "tracking.register_models=true")
    first = run(registering).stdout
    assert first.count("skipped") == 5
    for task in ("token_completion", "text_search"):
        assert f"version 1 of permcode-{task}, now its champion" in first
    assert "registry:" not in run(registering).stdout
