"""A file whose modification time shows until when a process lived, even one that was killed.

On shared storage the time is that of the machine that beats, not of the file server, so that it can be compared with
the times in the process's own records.
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
"""A beat older than this means that the process is dead or hangs."""


class Heartbeat(AbstractContextManager["Heartbeat"]):
    """Touches `path` twice a second from a separate thread while the block runs.

    `previous_beat_s` is the time of the last beat of an earlier process (seconds since the epoch), None if there was
    none. A beat that cannot be written, as on a full disk, is skipped: it must not disturb the process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat_until_ended, name="heartbeat", daemon=True)
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

    def _beat_until_ended(self) -> None:
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
    """Return the time of the last beat in seconds since the epoch, None if there is no heartbeat file."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return None


def process_started_s() -> float:
    """Return when this process started, in seconds since the epoch; precise to a clock tick (10 ms), and constant."""
    return _started_s(os.getpid())


@cache
def _started_s(pid: int) -> float:
    # Split after the last parenthesis, because the program's name, in parentheses, may contain spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    since_boot_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot_s)
