"""The state of a command in its run's folder."""

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from cluster import run_state
from cluster.reporter import Reporter
from cluster.run_state import RunState, WorkProgress, change, read_state, waiting_for, written_to


def state_when(folder: Path, **wanted: object) -> RunState:
    """The state as soon as it has these values."""
    deadline_s = time.monotonic() + 30
    while True:
        found = read_state(folder)
        if found is not None and all(getattr(found, name) == value for name, value in wanted.items()):
            return found
        assert time.monotonic() < deadline_s, found
        time.sleep(0.05)


def test_changes_appear_in_the_file_and_its_end_is_recorded(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    with written_to(tmp_path):
        assert state_when(tmp_path, ended="").stage == ""
        change(stage="pretrain", attempt=2)
        with waiting_for("room"):
            state_when(tmp_path, stage="pretrain", attempt=2, waiting_for="room")
        run_state.change_nodes(["b (10.0.0.2)"])
        state_when(tmp_path, waiting_for="", lost_nodes=("b (10.0.0.2)",))
    assert state_when(tmp_path, ended="finished").attempt == 2


def test_why_a_command_ended(tmp_path: Path) -> None:
    for error, reason in ((KeyboardInterrupt(), "interrupted"), (ValueError("bad\nnumber"), "bad")):
        with pytest.raises(type(error)), written_to(tmp_path):
            raise error
        state_when(tmp_path, ended=reason)


def test_progress_of_a_bar_is_noted(tmp_path: Path) -> None:
    with written_to(tmp_path):
        with Reporter(console=Console(file=io.StringIO())).bar("read", 10, "MB") as bar:
            bar.update(4, "x.py")
            bar.advance()
        state_when(tmp_path, progress=WorkProgress("read", 5, 10, "MB", "x.py"))


def test_the_state_of_a_newer_version_is_none(tmp_path: Path) -> None:
    (tmp_path / ".state.json").write_text('{"stage": "prep", "mood": "good"}')
    assert read_state(tmp_path) is None
