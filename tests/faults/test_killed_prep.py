"""prep on any number of workers, with its processes killed at any moment: the same bytes."""

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from cluster.storage import sha256_file
from tests.integration.smoke_run import command, copy_corpus, only, run

_PATIENCE_S = 300
# After the first new file of a run; on a quiet machine the rest takes a second or two.
_DELAYS_S = (0.0, 0.1, 0.3)
# Small units of work, so that there are several of each kind to be killed in.
_OVERRIDES = ("prep.shard_tokens=30_000", "prep.block_tokens=10_000", "prep.secrets.enabled=true")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def untouched(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What one worker makes, which does one task after the other; the tests have more workers."""
    out = tmp_path_factory.mktemp("untouched") / "run"
    run(command("prep", out, corpus, *_OVERRIDES, "ray.num_cpus=1"))
    return outputs(out)


def outputs(out: Path) -> dict[str, str]:
    folder = only(out, "prep-*")
    assert not (folder / "work").exists()
    files = [
        path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "STAGE"))
    ]
    return {str(path.relative_to(folder)): sha256_file(path) for path in files}


@pytest.mark.slow
def test_the_number_of_workers_changes_no_byte(
    corpus: Path, untouched: dict[str, str], tmp_path: Path
) -> None:
    run(command("prep", tmp_path / "run", corpus, *_OVERRIDES, "ray.num_cpus=4"))
    assert outputs(tmp_path / "run") == untouched


def test_killed_again_and_again_it_ends_with_the_same_bytes(
    corpus: Path, untouched: dict[str, str], tmp_path: Path
) -> None:
    """The driver with all its workers, each time a little after they have begun."""
    out, log = tmp_path / "run", tmp_path / "log"
    arguments = command("prep", out, corpus, *_OVERRIDES, "ray.num_cpus=2")
    num_killed = 0
    for delay_s in _DELAYS_S:
        process = start(arguments, log)
        if not wait_for_work(process, out, log):
            break
        time.sleep(delay_s)
        if process.poll() is not None:
            break
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        num_killed += 1
    assert num_killed >= 2
    run(arguments)
    assert outputs(out) == untouched


@pytest.mark.slow
def test_killed_workers_are_replaced(corpus: Path, untouched: dict[str, str], tmp_path: Path) -> None:
    """Single workers, while the driver lives: the command the user gave just ends well.

    Not three of them: on a busy machine all could die of the same file, which is then left out as one that kills.
    """
    out, log = tmp_path / "run", tmp_path / "log"
    process = start(command("prep", out, corpus, *_OVERRIDES, "ray.num_cpus=2"), log)
    num_killed = 0
    deadline_s = time.monotonic() + _PATIENCE_S
    while process.poll() is None and num_killed < 2:
        assert time.monotonic() < deadline_s, log.read_text()
        num_killed += kill_a_busy_worker(process.pid)
        time.sleep(0.05)
    assert process.wait(timeout=_PATIENCE_S) == 0, log.read_text()
    assert num_killed >= 1
    assert "its worker died; trying again" in log.read_text()
    assert outputs(out) == untouched


def start(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(arguments, start_new_session=True, stdout=output, stderr=output)


def wait_for_work(process: subprocess.Popen[bytes], out: Path, log: Path) -> bool:
    """Until a task has begun; False when the command ended before."""
    before = set(out.glob("prep-*/work/*"))
    deadline_s = time.monotonic() + _PATIENCE_S
    while process.poll() is None:
        assert time.monotonic() < deadline_s, log.read_text()
        if set(out.glob("prep-*/work/*")) - before:
            return True
        time.sleep(0.02)
    assert process.returncode == 0, log.read_text()
    return False


def kill_a_busy_worker(driver: int) -> int:
    """Kill one Ray worker that runs a task of prep; returns how many were."""
    for child in psutil.Process(driver).children(recursive=True):
        try:
            name = " ".join(child.cmdline())
        except psutil.Error:
            continue
        if name.startswith("ray::_run_task"):
            child.kill()
            return 1
    return 0
