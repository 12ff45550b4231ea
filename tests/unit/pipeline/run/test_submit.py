"""What a job is sent: code, the resolved recipe, paths that mean the same on the cluster."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipeline.cli import app
from pipeline.folder.recipe import load_run_config
from pipeline.run import submit
from tests.unit.pipeline.recording_reporter import RecordingReporter

ADDRESS = "http://head:8265"


class Sent:
    """Stands for the cluster: keeps what came and reads the recipe while the packed code is there."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []

    def take(self, **job: Any) -> int:
        entrypoint = job["entrypoint"]
        recipe = job["working_folder"] / entrypoint[entrypoint.index("--recipe") + 1]
        self.jobs.append({**job, "config": load_run_config(str(recipe))})
        assert (job["working_folder"] / "pipeline" / "cli.py").is_file()
        return 7


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    sent = Sent()
    monkeypatch.setattr(submit, "submit_job", sent.take)
    return sent


def test_a_job_gets_absolute_paths_and_the_whole_config(
    sent: Sent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reporter: RecordingReporter
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [
        "prep.source.path=code",
        "seed=5",
        "finetune.completion.task.folder=d",
        "finetune.completion.task.test=t",
    ]
    config = load_run_config("smoke", given)
    assert submit.submit_run(config, Path("out"), ADDRESS, reporter) == 7
    (job,) = sent.jobs
    assert job["entrypoint"][-2:] == ["--out", str(tmp_path / "out")]
    assert job["config"].prep.source.path == str(tmp_path / "code")
    assert job["config"].finetune["completion"].task.folder == tmp_path / "d"
    assert job["config"].seed == 5
    assert not job["working_folder"].exists()
    assert list(tmp_path.iterdir()) == []


def test_the_same_run_has_the_same_submission_key_wherever_it_is_sent_from(
    sent: Sent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reporter: RecordingReporter
) -> None:
    monkeypatch.chdir(tmp_path)
    submit.submit_run(load_run_config("smoke", ["prep.source.path=code"]), Path("out"), ADDRESS, reporter)
    monkeypatch.chdir("/")
    there = load_run_config("smoke", [f"prep.source.path={tmp_path}/code"])
    submit.submit_run(there, tmp_path / "out", ADDRESS, reporter)
    submit.submit_run(there, tmp_path / "other", ADDRESS, reporter)
    first, second, third = (job["submission_key"] for job in sent.jobs)
    assert first == second != third


def test_the_home_folder_is_that_of_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    config = submit.config_for_cluster(load_run_config("smoke", ["prep.source.path=~/code"]))
    assert config.prep.source.model_dump(mode="json")["path"] == "/home/ann/code"


def test_a_dry_run_shows_config_and_graph_and_asks_nobody(sent: Sent, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["submit", "--recipe", "smoke", "--out", str(out), "--address", ADDRESS, "--dry-run"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    assert "block_tokens: 16384" in result.stdout
    for stage in ("prep", "pretrain", "completion", "search", "report"):
        assert f"{out}/{stage}-KEY" in result.stdout
    assert "reads prep + pretrain; runs" in result.stdout
    assert f"would be sent to {ADDRESS}, to run there in {out}" in result.stdout
    assert sent.jobs == []
    assert not out.exists()
