"""Existing files of an interrupted preparation are verified by their checksums."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cluster.file_tasks import FileTask
from cluster.storage import write_bytes
from data_prep.corpus import work as work_module
from data_prep.corpus.work import Work
from tests.unit.pipeline.recording_reporter import RecordingReporter

made: list[str] = []


def make(name: str, output: Path) -> None:
    made.append(name)
    write_bytes(output, f"all of {name}".encode())


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    def one_by_one(function: Callable[..., None], tasks: Sequence[FileTask], *_: Any, **__: Any) -> None:
        for task in tasks:
            if not task.output.exists():
                function(*task.arguments, task.output)

    monkeypatch.setattr(work_module, "run_file_tasks", one_by_one)
    made.clear()
    return Work(tmp_path, RecordingReporter(), 1)


def tasks_of(work: Work) -> list[FileTask]:
    return [FileTask(name, work.path("part", name, "bin"), (name,)) for name in ("one", "two", "three")]


def test_only_parts_that_are_damaged_or_without_checksum_are_made_again(work: Work) -> None:
    tasks = tasks_of(work)
    work.run("read", make, tasks, [1, 1, 1])
    work.run("read", make, tasks, [1, 1, 1])
    assert made == ["one", "two", "three"]
    tasks[0].output.write_bytes(b"all of onf")
    (tasks[1].output.parent / f".{tasks[1].output.name}.sha256").unlink()
    work.run("read", make, tasks, [1, 1, 1])
    assert made[3:] == ["one", "two"]
    assert [task.output.read_text() for task in tasks] == ["all of one", "all of two", "all of three"]
    assert isinstance(work.reporter, RecordingReporter)
    assert any("1 of 3 parts are done (2 damaged parts" in line for line in work.reporter.lines)
