"""`permcode submit`: the whole run as a job of a cluster, from the command line."""

from pathlib import Path

import pytest

from tests.integration.conftest import RayHead
from tests.integration.smoke_run import command, copy_corpus, only, run


@pytest.fixture
def head(ray_head: RayHead, monkeypatch: pytest.MonkeyPatch) -> RayHead:
    monkeypatch.setenv("RAY_AUTH_TOKEN", ray_head.token)
    return ray_head


def test_the_whole_run_ends_on_the_cluster_as_it_does_here(head: RayHead, tmp_path: Path) -> None:
    corpus, out = copy_corpus(tmp_path / "corpus"), tmp_path / "run"
    done = run([*command("submit", out, corpus), "--address", head.address])
    assert "pretrain: finished in" in done.stdout
    assert (out / "report.html").exists()
    assert only(out, "pretrain-*").joinpath("model", "model.safetensors").exists()


def test_a_job_that_fails_on_bad_input_gives_its_exit_status(head: RayHead, tmp_path: Path) -> None:
    arguments = command("submit", tmp_path / "run", tmp_path / "nowhere")
    done = run([*arguments, "--address", head.address], expect=2)
    assert "nowhere" in done.stdout + done.stderr
    assert not (tmp_path / "run").exists()
