"""What a program may use, and what became of it."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from cluster.config import Config

MAX_OUTPUT_BYTES = 1 << 20
"""Of stdout and stderr together; a program that writes more is killed."""
Status = Literal["passed", "failed", "timeout", "memory", "output", "killed"]


class Limits(Config):
    """The limits of one program. Every process of it is held to the limits that are said to be per process."""

    wall_s: float = Field(default=10.0, gt=0)
    """From the program's start to its last process killed."""
    cpu_s: int = Field(default=5, ge=1)
    """Processor time, per process."""
    memory_bytes: int = Field(default=512 * 1024**2, ge=64 * 1024**2)
    """Address space, per process; the interpreter takes some 20 MB of it."""
    disk_bytes: int = Field(default=16 * 1024**2, ge=4096)
    """All files together; they lie in memory and vanish with the program."""
    processes: int = Field(default=8, ge=1)
    """Processes and threads at one time, the program's own included."""


@dataclass(frozen=True)
class Outcome:
    """How a program ended.

    passed: it ran to its last line. failed: an exception ended it, or it left early (`sys.exit`, `os._exit`) with
    any code, for then its checks may not have run. timeout: wall clock or processor time was used up. memory: a
    MemoryError ended it. output: it wrote too much. killed: a signal ended it, a crash of the interpreter included.
    """

    status: Status
    seconds: float
    """Wall time from its start."""
    stdout: str
    stderr_tail: str
    """The last 2,000 characters: where a traceback ends."""

    @property
    def passed(self) -> bool:
        """Whether it ran to its last line."""
        return self.status == "passed"
