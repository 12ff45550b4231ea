"""Protection against files that crash their worker, so that the rest of the corpus can be read."""

import os
from pathlib import Path
from types import TracebackType

MAX_CRASHES = 3
_NOTHING = -1
_HEAD_BYTES = 64


class CrashGuard:
    """Records beside a task's output which item is in work, so that the next attempt knows which one crashed it.

    An item that crashed MAX_CRASHES attempts is skipped from then on, in later runs, too. Before that, only crashes
    within one run (`run_id`) count: killing a driver kills its workers as well, which is no fault of the file. Used as
    a context manager; leaving it without a crash removes the record.
    """

    def __init__(self, output: Path, run_id: str) -> None:
        self._path = output.with_name(f".{output.name}.at")
        self._run_id = run_id
        self._num_crashes = self._read()

    def __enter__(self) -> "CrashGuard":
        self._path.parent.mkdir(parents=True, exist_ok=True)
        counts = " ".join(f"{item}:{count}" for item, count in sorted(self._num_crashes.items()))
        self._path.write_text(self._head(_NOTHING) + counts)
        self._descriptor = os.open(self._path, os.O_WRONLY)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        os.close(self._descriptor)
        self._path.unlink(missing_ok=True)

    def begin(self, item: int) -> bool:
        """Record that work on `item` begins. Return False if it has crashed its worker too often to be retried."""
        if self._num_crashes.get(item, 0) >= MAX_CRASHES:
            return False
        self._record(item)
        return True

    def end(self) -> None:
        """Record that work on the item is done: it is not the cause of a later crash."""
        self._record(_NOTHING)

    def _record(self, item: int) -> None:
        # The page cache outlives the process, so there is no fsync; the width is fixed, to overwrite the last record.
        os.pwrite(self._descriptor, self._head(item).encode(), 0)

    def _head(self, item: int) -> str:
        return f"{self._run_id} {item}".ljust(_HEAD_BYTES - 1) + "\n"

    def _read(self) -> dict[int, int]:
        """Return crashes by item, including that of the last attempt."""
        try:
            text = self._path.read_text()
            run_id, item = text[:_HEAD_BYTES].split()
            pairs = [entry.split(":") for entry in text[_HEAD_BYTES:].split()]
            counts = {int(number): int(count) for number, count in pairs}
            current = int(item)
        except (OSError, ValueError):  # ValueError: half-written, or not text
            return {}
        if run_id != self._run_id:
            return {number: count for number, count in counts.items() if count >= MAX_CRASHES}
        if current != _NOTHING:
            counts[current] = counts.get(current, 0) + 1
        return counts
