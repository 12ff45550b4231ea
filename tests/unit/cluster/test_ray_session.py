import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cluster.errors import RetryableError, UserError
from cluster.ray_session import RayConfig, ray_session

DRIVER = """
import sys, time
from pathlib import Path
from cluster.file_tasks import FileTask, run_file_tasks
from cluster.ray_session import RayConfig, ray_session
def slow(output):
    time.sleep(60)
with ray_session(RayConfig(num_cpus=1), Path(sys.argv[1])):
    print("open", flush=True)
    run_file_tasks(slow, [FileTask("slow", Path(sys.argv[1]) / "out", ())], lambda task: None)
"""


def end_in_a_user_error(log_folder: Path) -> None:
    """Open a session whose logs cannot be kept."""
    with ray_session(RayConfig(num_cpus=1), log_folder):
        # No folder can be made or opened below a file.
        (log_folder / "ray").write_text("in the way")
        raise UserError("disk full while writing x")


def test_logs_that_cannot_be_kept_do_not_hide_the_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="disk full while writing x"):
        end_in_a_user_error(tmp_path)
    assert (tmp_path / "ray").read_text() == "in the way"


def test_the_error_names_a_cluster_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with (
        pytest.raises(RetryableError, match=r"no Ray cluster answers at RAY_ADDRESS=127\.0\.0\.1:1"),
        ray_session(RayConfig(), tmp_path),
    ):
        pass


def start_driver(log_folder: Path) -> tuple["subprocess.Popen[bytes]", list[psutil.Process]]:
    """Return a driver with an open session and a running task, and the processes of its Ray."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(log_folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == b"open\n"
    time.sleep(2)
    return driver, psutil.Process(driver.pid).children(recursive=True)


def test_killed_driver_leaves_no_ray_processes(tmp_path: Path) -> None:
    driver, ray_processes = start_driver(tmp_path)
    assert any("raylet" in process.name() for process in ray_processes)
    # Ray's two idle agents first try for a minute to reach the head, which is gone, too.
    agents = [p for p in ray_processes if "Agent" in " ".join(p.cmdline())]
    assert len(agents) <= 2
    driver.kill()
    driver.communicate()
    _, alive = psutil.wait_procs([p for p in ray_processes if p not in agents], timeout=15)
    assert alive == []


def test_interrupt_ends_the_session_at_once_and_quietly(tmp_path: Path) -> None:
    driver, ray_processes = start_driver(tmp_path)
    start_s = time.monotonic()
    driver.send_signal(signal.SIGINT)
    output, _ = driver.communicate(timeout=30)
    assert time.monotonic() - start_s < 15
    assert output.decode().rstrip().splitlines()[-1] == "KeyboardInterrupt"
    assert output.startswith(b"Traceback")
    _, alive = psutil.wait_procs(ray_processes, timeout=15)
    assert alive == []
    assert (tmp_path / "ray" / "raylet.out").is_file()
