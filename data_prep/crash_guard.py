"""A file that kills its worker every time must not keep the corpus from being read."""

import os
from pathlib import Path
from types import TracebackType

MAX_CRASHES = 3
_NOTHING = -1
_HEAD_BYTES = 64


class CrashGuard:
    """Notes beside a task's output which item is being worked on, so that the next attempt knows what the last
    one died of.

    An item that MAX_CRASHES attempts died of is passed over from then on, in later runs too. Before that only
    deaths within one run (`run_id`) count: a driver that is killed takes its workers with it, which says nothing
    of the file. Used as a context; leaving it without a crash removes the note.
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

    def enter(self, item: int) -> bool:
        """Say that work on `item` begins; False when it has killed its worker too often to be tried again."""
        if self._num_crashes.get(item, 0) >= MAX_CRASHES:
            return False
        self._note(item)
        return True

    def leave(self) -> None:
        """Say that the work on the item is done: a death from now on is not its fault."""
        self._note(_NOTHING)

    def _note(self, item: int) -> None:
        # The page cache outlives the process, so no fsync; the width is fixed, so nothing is left of before.
        os.pwrite(self._descriptor, self._head(item).encode(), 0)

    def _head(self, item: int) -> str:
        return f"{self._run_id} {item}".ljust(_HEAD_BYTES - 1) + "\n"

    def _read(self) -> dict[int, int]:
        """Deaths by item, the last attempt's included."""
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
