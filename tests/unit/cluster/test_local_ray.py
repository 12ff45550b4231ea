"""The local Ray's folder, and its start on a machine that is too busy."""

import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from cluster.local_ray import make_private_temp_folder

DRIVER = """
import sys
from pathlib import Path
from cluster import local_ray
from cluster.errors import RetryableError
from cluster.ray_session import RayConfig, ray_session
local_ray._NUM_STARTS, local_ray._FIRST_PAUSE_S = int(sys.argv[2]), 0.1
try:
    with ray_session(RayConfig(num_cpus=1), Path(sys.argv[1]), lambda reason: print("again:", reason, flush=True)):
        print("open", flush=True)
except RetryableError as error:
    print("retryable:", error, flush=True)
"""


@pytest.fixture
def temp_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Replace /tmp by a folder with a path as short; `tmp_path` stays where it is."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="pc-") as folder:
        monkeypatch.setattr("tempfile.tempdir", None)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


@contextmanager
def starting(logs: Path, num_starts: int, gcs_wait_s: int) -> Iterator["subprocess.Popen[str]"]:
    """Start a driver that opens a session, with a short timeout for Ray's gcs."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(logs), str(num_starts)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "RAY_gcs_server_port_wait_time_s": str(gcs_wait_s)},
    )
    try:
        yield driver
    finally:
        driver.kill()
        driver.communicate()


def suspend_gcs(driver: "subprocess.Popen[str]", at_most: int) -> list[psutil.Process]:
    """Stop the first processes of that name before they are ready, as on a busy machine; return those stopped."""
    stopped: list[psutil.Process] = []
    while driver.poll() is None and len(stopped) < at_most:
        for process in psutil.Process(driver.pid).children():
            with suppress(psutil.Error):
                if process.name() == "gcs_server" and process not in stopped:
                    process.suspend()
                    stopped.append(process)
        time.sleep(0.005)
    return stopped


def test_the_folder_of_ray_is_in_a_private_folder(temp_folder: Path) -> None:
    closed = make_private_temp_folder().parent
    assert closed == temp_folder / f"permcode-ray-{os.getuid()}"
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    closed.chmod(0o777)
    assert make_private_temp_folder().parent == closed
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_a_folder_of_another_user_is_not_used(temp_folder: Path, tmp_path: Path) -> None:
    prepared = temp_folder / f"permcode-ray-{os.getuid()}"
    prepared.symlink_to(tmp_path)
    other = make_private_temp_folder().parent
    assert other.parent == temp_folder
    assert other != prepared
    assert stat.S_IMODE(other.stat().st_mode) == 0o700
    assert list(tmp_path.iterdir()) == []


def test_the_longest_socket_path_fits(temp_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    socket_name = "session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
    monkeypatch.setattr("os.getuid", lambda: 4294967294)
    monkeypatch.setattr("cluster.local_ray.make_private_folder", lambda folder: True)
    for length in range(1, 40):
        monkeypatch.setattr("tempfile.gettempdir", lambda length=length: "/" + "t" * length)
        assert len(str(make_private_temp_folder() / socket_name)) <= 107


def test_a_start_that_takes_too_long_is_cleaned_up_and_retried(temp_folder: Path, tmp_path: Path) -> None:
    with starting(tmp_path, num_starts=4, gcs_wait_s=10) as driver:
        (stopped,) = suspend_gcs(driver, at_most=1)
        assert driver.stdout is not None
        lines = []
        while not lines or lines[-1] != "open":
            lines.append(driver.stdout.readline().strip())
            assert lines[-1], lines
        assert lines[0].startswith("again: the local Ray did not start (")
        assert not stopped.is_running()


def test_starts_that_all_take_too_long_are_a_retryable_error(temp_folder: Path, tmp_path: Path) -> None:
    with starting(tmp_path, num_starts=2, gcs_wait_s=1) as driver:
        stopped = suspend_gcs(driver, at_most=2)
        output, _ = driver.communicate(timeout=120)
    *_, last = output.splitlines()
    assert last.startswith("retryable: the local Ray did not start in 2 attempts (")
    assert len(stopped) == 2
    _, alive = psutil.wait_procs(stopped, timeout=30)  # the machine's first process takes note of their end
    assert not alive
    assert list(make_private_temp_folder().glob("session_2*")) == []
