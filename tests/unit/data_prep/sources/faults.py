"""Local files whose reads fail as configured by a test."""

import errno
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest


@dataclass
class Faults:
    """Refuses the first `num_times` reads that touch bytes from..to of files with a given name."""

    name: str
    from_byte: int = 0
    to_byte: int = 1 << 60
    num_times: int = 1 << 60
    number: int = errno.EIO
    num_seen: int = 0

    def check(self, file: io.FileIO, num_bytes: int) -> None:
        """Raise OSError if this read is to fail."""
        start = file.tell()
        path = os.readlink(f"/proc/self/fd/{file.fileno()}")
        if path.endswith(self.name) and start < self.to_byte and start + num_bytes > self.from_byte:
            self.num_seen += 1
            if self.num_seen <= self.num_times:
                raise OSError(self.number, os.strerror(self.number))


def break_reads(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> list[float]:
    """Let `faults` decide which reads fail; return the list that collects all pauses (s)."""
    broken = SimpleNamespace(
        read=_checked(io.FileIO.read, faults, lambda size: size),
        readinto=_checked(io.FileIO.readinto, faults, len),
    )
    pauses_s: list[float] = []
    monkeypatch.setattr("data_prep.sources.local_retries.io", SimpleNamespace(FileIO=broken))
    monkeypatch.setattr("data_prep.sources.local_retries.time", SimpleNamespace(sleep=pauses_s.append))
    monkeypatch.setattr("data_prep.sources.local_retries.wasted_pauses_s", 0.0)
    return pauses_s


def _checked(plain: Callable[..., Any], faults: Faults, size_of: Callable[[Any], int]) -> Callable[..., Any]:
    def read(file: io.FileIO, argument: Any) -> Any:
        faults.check(file, size_of(argument))
        return plain(file, argument)

    return read
