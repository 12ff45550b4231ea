import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cluster.errors import RetryableError, UnfinishedError, UserError
from cluster.ray_session import FileTask, RayConfig, ray_session, run_file_tasks
from cluster.storage import read_json, write_json

DRIVER = """
import sys, time
from pathlib import Path
from cluster.ray_session import FileTask, RayConfig, ray_session, run_file_tasks
def slow(output):
    time.sleep(60)
with ray_session(RayConfig(num_cpus=1), Path(sys.argv[1])):
    print("open", flush=True)
    run_file_tasks(slow, [FileTask("slow", Path(sys.argv[1]) / "out", ())], lambda task: None)
"""


def square(value: int, output: Path) -> None:
    write_json(output, {"square": value * value, "pid": os.getpid()})


def refuse(value: int, output: Path) -> None:
    kind = UnfinishedError if value == 8 else UserError
    raise kind(f"shard {value} is damaged: make it again")


def break_down(output: Path) -> None:
    raise ZeroDivisionError("a bug")


def die_once(marker: Path, output: Path) -> None:
    """Kill the worker process the first time."""
    if not marker.exists():
        marker.write_text("died")
        os._exit(1)
    write_json(output, "made in the end")


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


@pytest.mark.usefixtures("ray_local")
def test_missing_outputs_are_made_and_all_are_reported(tmp_path: Path) -> None:
    tasks = [FileTask(f"square {value}", tmp_path / f"{value}.json", (value,)) for value in range(8)]
    write_json(tasks[3].output, "was there")
    done: list[str] = []
    run_file_tasks(square, tasks, lambda task: done.append(task.name), max_in_flight=3)
    assert sorted(done) == [task.name for task in tasks]
    assert read_json(tasks[3].output) == "was there"
    assert read_json(tasks[7].output)["square"] == 49
    assert read_json(tasks[7].output)["pid"] != os.getpid()


@pytest.mark.usefixtures("ray_local")
@pytest.mark.parametrize(("value", "kind"), [(7, UserError), (8, UnfinishedError)])
def test_a_user_error_is_raised_unchanged(tmp_path: Path, value: int, kind: type[UserError]) -> None:
    tasks = [FileTask(f"refuse {number}", tmp_path / str(number), (value,)) for number in range(20)]
    with pytest.raises(UserError) as caught:
        run_file_tasks(refuse, tasks, lambda task: None)
    assert str(caught.value) == f"shard {value} is damaged: make it again"
    assert type(caught.value) is kind


@pytest.mark.usefixtures("ray_local")
def test_a_bug_in_a_task_is_not_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError, match="a bug"):
        run_file_tasks(break_down, [FileTask("bug", tmp_path / "x", ())], lambda task: None)


@pytest.mark.usefixtures("ray_local")
def test_a_task_lost_with_its_worker_is_retried(tmp_path: Path) -> None:
    task = FileTask("die once", tmp_path / "out.json", (tmp_path / "marker",))
    run_file_tasks(die_once, [task], lambda task: None)
    assert read_json(task.output) == "made in the end"


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
