"""Ray's own processes, or the folder, are taken from under a run: it ends soon, with one line."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.integration.smoke_run import command, copy_corpus

_START_S = 300
_END_S = 90.0


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_corpus(tmp_path_factory.mktemp("corpus"))


@contextmanager
def started(arguments: list[str]) -> Iterator["subprocess.Popen[str]"]:
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    run = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield run
    finally:
        if run.poll() is None:
            run.kill()
            run.communicate()


def wait_for(run: "subprocess.Popen[str]", name: str) -> psutil.Process:
    """Ray's process of that name, once a worker of the run has a task."""
    deadline_s = time.monotonic() + _START_S
    while time.monotonic() < deadline_s and run.poll() is None:
        processes = {one.name(): one for one in psutil.Process(run.pid).children(recursive=True)}
        # Ray names its workers after what they do.
        if name in processes and any(re.match(r"ray::(?!IDLE|\w+Agent)", other) for other in processes):
            return processes[name]
        time.sleep(0.1)
    raise AssertionError(f"no {name} with work to do")


@pytest.mark.parametrize("name", ["raylet", pytest.param("gcs_server", marks=pytest.mark.slow)])
def test_run_that_loses_a_process_of_ray_says_try_again(corpus: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "run"
    with started(command("prep", out, corpus)) as run:
        wait_for(run, name).kill()
        _, errors = run.communicate(timeout=_END_S)
    assert run.returncode == 75, errors
    lost = f"Ray lost a process of its own ({name} ended)"
    line = f"permcode: failed for now (lost process): {lost}; run the same command again"
    assert errors.splitlines() == [line]
    assert out.is_dir()
    assert not list((out / "logs").glob("permcode-failed-*.log"))


@pytest.mark.slow
def test_run_whose_folder_is_removed_says_so_and_leaves_no_new_one(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with started(command("prep", out, corpus)) as run:
        wait_for(run, "raylet")
        shutil.rmtree(out, ignore_errors=True)
        _, errors = run.communicate(timeout=_END_S)
    assert run.returncode == 2, errors
    assert len(errors.splitlines()) == 1, errors
    assert errors.startswith(
        f"permcode: error: the output folder {out} was removed or renamed while this command"
    )
    assert not out.exists()
