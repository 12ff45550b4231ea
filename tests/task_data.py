"""Where real task data lies: tests that read it are skipped unless PERMCODE_TASK_DATA names the folder."""

import os
from pathlib import Path

import pytest

TASK_DATA = Path(os.environ.get("PERMCODE_TASK_DATA", "/nonexistent"))

needs_task_data = pytest.mark.skipif(
    "PERMCODE_TASK_DATA" not in os.environ, reason="PERMCODE_TASK_DATA does not name the folder of task data"
)


def lines_of(path: Path) -> list[str]:
    """The lines of a file as CodeXGLUE counts them: parted by LF alone."""
    return path.read_text(encoding="utf-8").split("\n")[:-1]
