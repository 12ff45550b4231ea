"""A file that kills its worker every time must not keep the corpus from being read."""

import os
from pathlib import Path
from types import TracebackType

_MAX_CRASHES = 3
RULE = "crash"


class CrashGuard:
    """Notes beside a task's output which item is being worked on, so that the next attempt knows what the last
    one died of.

    Only deaths within one run (`run_id`) count: a driver that is killed takes its workers with it, which says
    nothing of the file. Used as a context; leaving it without a crash removes the note.
    """

    def __init__(self, output: Path, run_id: str) -> None:
        self._path = output.with_name(f".{output.name}.at")
        self._run_id = run_id
        self._item, self._num_crashes = self._read()

    def __enter__(self) -> "CrashGuard":
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        os.close(self._descriptor)
        self._path.unlink(missing_ok=True)

    def enter(self, item: int) -> bool:
        """Say that work on `item` begins; False when it has killed its worker too often to be tried again."""
        num_crashes = self._num_crashes if item == self._item else 0
        if num_crashes >= _MAX_CRASHES:
            return False
        # The page cache outlives the process, so no fsync; the width is fixed, so nothing is left of before.
        os.pwrite(self._descriptor, f"{self._run_id} {item:20d} {num_crashes + 1:4d}".encode(), 0)
        return True

    def _read(self) -> tuple[int, int]:
        try:
            run_id, item, num_crashes = self._path.read_text().split()
        except (OSError, ValueError):  # ValueError: half-written, or not text
            return -1, 0
        return (int(item), int(num_crashes)) if run_id == self._run_id else (-1, 0)
