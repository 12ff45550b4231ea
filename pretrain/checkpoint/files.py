"""One file of a commit: written and hashed in one go, and described by size and SHA-256."""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.fault_points import fault_point

_CHUNK_BYTES = 4 << 20
"""Small enough to be hashed while it is still in the processor's cache."""


@dataclass(frozen=True)
class FileEntry:
    """What a file must be."""

    size_bytes: int
    sha256: str

    def to_json(self) -> dict[str, Any]:
        """For COMMIT.json."""
        return {"bytes": self.size_bytes, "sha256": self.sha256}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "FileEntry":
        """Raises KeyError, TypeError or ValueError for anything else."""
        return cls(int(stored["bytes"]), str(stored["sha256"]))


def write_hashed(path: Path, parts: Iterable[bytes | memoryview]) -> FileEntry:
    """Write `parts` one after the other to a file that survives a power cut, hashed on the way.

    Raises OSError. A kill leaves half a file: the folder must be one that nobody takes for a commit yet.
    """
    digest, size_bytes = hashlib.sha256(), 0
    with path.open("wb", buffering=0) as file:
        fault_point("commit.tensors_opened")
        for number, part in enumerate(parts):
            for chunk in _chunks(memoryview(part)):
                _write_whole(file.fileno(), chunk)
                digest.update(chunk)
                size_bytes += len(chunk)
            if number == 0:
                fault_point("commit.tensors_torn")
        fault_point("commit.tensors_written")
        os.fsync(file.fileno())
    fault_point("commit.tensors_synced")
    return FileEntry(size_bytes, digest.hexdigest())


def _chunks(data: memoryview) -> Iterable[memoryview]:
    return (data[start : start + _CHUNK_BYTES] for start in range(0, len(data), _CHUNK_BYTES))


def _write_whole(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
