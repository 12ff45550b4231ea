"""Real task data: the folder that PERMCODE_TASK_DATA names, else `../shared/data` beside the project."""

import os
from pathlib import Path

import pytest

TASK_DATA = Path(os.environ.get("PERMCODE_TASK_DATA") or Path(__file__).parents[2] / "shared" / "data")

needs_task_data = pytest.mark.skipif(
    not TASK_DATA.is_dir(),
    reason=f"no task data: {TASK_DATA} is no folder (PERMCODE_TASK_DATA may name another)",
)


def lines_of(path: Path) -> list[str]:
    """The lines of a file as CodeXGLUE counts them: parted by LF alone."""
    return path.read_text(encoding="utf-8").split("\n")[:-1]
