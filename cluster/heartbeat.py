"""A file whose time of change says until when a process lived, also one that was killed.

On shared storage the beat carries the beating machine's clock, not the file server's, so that beats and the
process's own records can be compared.
"""

import os
import threading
import time
from contextlib import AbstractContextManager, suppress
from functools import cache
from pathlib import Path
from types import TracebackType

BEAT_INTERVAL_S = 0.5
STALE_S = 10.0
"""A beat older than this is the last one of a dead process, or one that hangs."""


class Heartbeat(AbstractContextManager["Heartbeat"]):
    """Touches `path` twice a second from a thread of its own while the block runs.

    `previous_beat_s` is when whoever beat here before did so last (seconds since the epoch), None for the first. A
    beat that cannot be written, as on a full disk, is left out: it never disturbs the process that beats.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="heartbeat", daemon=True)
        self.previous_beat_s = last_beat_s(path)

    def __enter__(self) -> "Heartbeat":
        self._beat()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _beat_on(self) -> None:
        while not self._ended.wait(BEAT_INTERVAL_S):
            self._beat()
        self._beat()

    def _beat(self) -> None:
        with suppress(OSError):
            now_ns = time.time_ns()
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.utime(descriptor, ns=(now_ns, now_ns))
            finally:
                os.close(descriptor)


def last_beat_s(path: Path) -> float | None:
    """When the last beat was, in seconds since the epoch; None where nobody ever beat."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return None


def process_started_s() -> float:
    """When this process began, in seconds since the epoch, to a clock tick (10 ms); always the same number."""
    return _started_s(os.getpid())


@cache
def _started_s(pid: int) -> float:
    # After the last parenthesis, because the program's name, in parentheses, may hold spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    since_boot_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot_s)
