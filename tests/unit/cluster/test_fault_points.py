"""A process kills itself at the requested fault point only, and the list of fault points is complete."""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.fault_points import FAULT_POINTS, fault_point

_REPOSITORY = Path(__file__).parents[3]
_PACKAGES = ("cluster", "data_prep", "pretrain", "finetune", "pipeline")
_WRITE_TWO_FILES = """
import sys
from pathlib import Path
from cluster.storage import write_bytes
for name in ("first", "second"):
    write_bytes(Path(sys.argv[1]) / name, b"new")
"""


def write_two_files(folder: Path, **environment: str) -> int:
    command = [sys.executable, "-c", _WRITE_TWO_FILES, str(folder)]
    return subprocess.run(command, env={**os.environ, **environment}, cwd=_REPOSITORY, check=False).returncode


def test_the_list_names_every_fault_point_of_the_code() -> None:
    found = set()
    for package in _PACKAGES:
        for path in (_REPOSITORY / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "fault_point":
                    assert isinstance(node.args[0], ast.Constant), f"{path}: names are literals"
                    found.add(node.args[0].value)
    assert found == set(FAULT_POINTS)


@pytest.mark.parametrize(
    ("point", "left"),
    [("file.synced:1", []), ("file.renamed:1", ["first"]), ("file.synced:2", ["first"])],
)
def test_a_process_dies_at_the_requested_point_and_count(tmp_path: Path, point: str, left: list[str]) -> None:
    assert write_two_files(tmp_path, PERMCODE_FAULT=point) == -signal.SIGKILL
    assert [name for name in sorted(os.listdir(tmp_path)) if not name.startswith(".")] == left


def test_another_rank_survives(tmp_path: Path) -> None:
    assert write_two_files(tmp_path, PERMCODE_FAULT="file.synced:1:1", RANK="0") == 0
    assert write_two_files(tmp_path, PERMCODE_FAULT="file.synced:1:1", RANK="1") == -signal.SIGKILL


def test_the_log_lists_every_point_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    assert write_two_files(tmp_path / "out", PERMCODE_FAULT_LOG=str(log), RANK="3") == 0
    steps = ("opened", "written", "synced", "renamed", "durable")
    assert log.read_text().split() == [f"file.{step}:{count}:3" for count in (1, 2) for step in steps]


def test_an_unknown_name_is_an_error_not_a_run_without_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERMCODE_FAULT", "file.sinked:1")
    with pytest.raises(ValueError, match="no such fault point"):
        fault_point("file.synced")
