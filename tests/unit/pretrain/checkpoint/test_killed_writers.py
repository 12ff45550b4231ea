"""A rank killed at any point of making a checkpoint: the old state or the new one is there, and the end is the same."""

import subprocess
import sys
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).parents[4]


def kill(every: int) -> str:
    command = [sys.executable, "-m", "tests.unit.pretrain.checkpoint.kill_writers", str(every)]
    done = subprocess.run(command, cwd=_REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


def test_killed_here_and_there_a_run_ends_as_if_nothing_had_happened() -> None:
    assert int(kill(every=17).split()[0]) > 10


@pytest.mark.slow
def test_killed_anywhere_a_run_ends_as_if_nothing_had_happened() -> None:
    printed = kill(every=1).split()
    assert int(printed[0]) > 190
    points = printed[printed.index("points:") + 1 :]
    assert {point for point in points if point.startswith("checkpoint.")} >= {
        "checkpoint.tensors_torn",
        "checkpoint.part_left",
        "checkpoint.listed",
        "checkpoint.damaged_moved",
        "checkpoint.renamed",
        "checkpoint.old_moved",
    }
