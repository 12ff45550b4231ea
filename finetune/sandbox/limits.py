"""The limits of a program, and its outcome."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from cluster.config import Config

MAX_OUTPUT_BYTES = 1 << 20
"""The limit for stdout and stderr together; a program that writes more is killed."""
Status = Literal["passed", "failed", "timeout", "memory", "output", "killed"]


class Limits(Config):
    """The limits of one program. Limits marked "per process" apply to each of its processes."""

    wall_s: float = Field(default=10.0, gt=0)
    """Wall time from the program's start until its last process is killed."""
    cpu_s: int = Field(default=5, ge=1)
    """Processor time, per process."""
    memory_bytes: int = Field(default=512 * 1024**2, ge=64 * 1024**2)
    """Address space, per process; the interpreter uses about 20 MB of it."""
    disk_bytes: int = Field(default=16 * 1024**2, ge=4096)
    """The size of all files together; they are kept in memory and deleted with the program."""
    processes: int = Field(default=8, ge=1)
    """Processes and threads at one time, including the program's first."""


@dataclass(frozen=True)
class Outcome:
    """How a program ended.

    passed: it ran to its last line. failed: an exception ended it, or it exited early (`sys.exit`, `os._exit`) with
    any code, because then its checks may not have run. timeout: wall clock or processor time was used up. memory: a
    MemoryError ended it. output: it wrote too much. killed: a signal ended it, including an interpreter crash.
    """

    status: Status
    seconds: float
    """Wall time from its start."""
    stdout: str
    stderr_tail: str
    """The last 2,000 characters of stderr, which contain the end of a traceback."""

    @property
    def passed(self) -> bool:
        """Whether the program ran to its last line."""
        return self.status == "passed"
