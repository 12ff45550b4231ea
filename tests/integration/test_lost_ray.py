"""Ray's own processes die under a run: it ends soon, with one line and "try again"."""

import os
import re
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.integration.smoke_run import command, copy_corpus

_START_S = 300
_END_S = 60.0


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_corpus(tmp_path_factory.mktemp("corpus"))


def wait_for(run: "subprocess.Popen[str]", name: str) -> psutil.Process:
    """Ray's process of that name, once a worker of the run has a task."""
    deadline_s = time.monotonic() + _START_S
    while time.monotonic() < deadline_s and run.poll() is None:
        processes = {one.name(): one for one in psutil.Process(run.pid).children(recursive=True)}
        # Ray names its workers after what they do.
        if name in processes and any(re.match(r"ray::(?!IDLE|\w+Agent)", other) for other in processes):
            return processes[name]
        time.sleep(0.1)
    raise AssertionError(f"no {name} with work to do: {run.communicate()}")


@pytest.mark.parametrize("name", ["raylet", "gcs_server"])
def test_run_that_loses_a_process_of_ray_says_try_again(corpus: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "run"
    arguments = command("prep", out, corpus)
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    run = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        wait_for(run, name).kill()
        start_s = time.monotonic()
        _, errors = run.communicate(timeout=_END_S)
    finally:
        run.kill()
        run.communicate()
    assert (run.returncode, time.monotonic() - start_s < _END_S) == (75, True), errors
    line = (
        f"permcode: failed for now: Ray lost a process of its own ({name} ended); run the same command again"
    )
    assert errors.splitlines() == [line]
    assert out.is_dir()
    assert not list((out / "logs").glob("permcode-failed-*.log"))
