"""Tasks that each write a file: done once, retried when their worker or node is lost."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import ray

from cluster import file_tasks
from cluster.errors import UnfinishedError, UserError
from cluster.file_tasks import FileTask, run_file_tasks
from cluster.storage import read_json, write_json


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


def hang_once(marker: Path, output: Path) -> None:
    """Block as long as the test lasts the first time, like a task whose node has no power."""
    if not marker.exists():
        marker.write_text("hangs")
        while not output.exists():
            time.sleep(0.1)
    write_json(output, "made in the end")


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


class Losing:
    """In place of the watch: the node is lost once the task has begun, and answers again when that was seen."""

    def __init__(self, began: Path) -> None:
        self._began, self._was_seen = began, False

    def lost_nodes(self) -> dict[str, str]:
        if self._was_seen or not self._began.exists():
            return {}
        self._was_seen = True
        return {ray.get_runtime_context().get_node_id(): "a node"}


@pytest.mark.usefixtures("ray_local")
def test_a_task_on_a_lost_node_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def watched(on_change: Callable[[str], None]) -> Iterator[Losing]:
        yield Losing(tmp_path / "marker")

    monkeypatch.setattr(file_tasks, "watched_nodes", watched)
    task = FileTask("hangs once", tmp_path / "out.json", (tmp_path / "marker",))
    retries: list[str] = []
    run_file_tasks(hang_once, [task], lambda task: None, on_retry=retries.append)
    assert read_json(task.output) == "made in the end"
    assert retries == ["hangs once: taken back from a lost node; trying again in 0.25 s"]
    assert {path.name for path in tmp_path.iterdir()} == {"out.json", "marker"}
