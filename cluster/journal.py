"""The append-only truth of a training run: one JSON line per step or event.

Anybody may read while one writes. Each line is one `write` on an O_APPEND descriptor, so lines of several
writers never mix; a line torn by a kill is skipped by readers, and the next writer starts a fresh line.
"""

import errno
import json
import os
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

from cluster.storage import write_bytes

JOURNAL_NAME = "journal.jsonl"
"""Of the journal in the folder of what is trained."""
Level = Literal["info", "warning"]
_HEAD_BYTES = 256
_SPELT_OUT = {"+": "p", "#": "sharp", "*": "star"}


@dataclass(frozen=True, kw_only=True)
class JournalRecord:
    """One line: a step with its metrics, or an event with its text."""

    kind: Literal["step", "event"]
    time_s: float
    """Seconds since the epoch, on the writer's clock."""
    step: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    text: str = ""
    level: Level = "info"
    name: str = ""
    """Of an event that programs look for, such as "start" or "commit"."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What programs need to know of a step or a named event; JSON values."""


class Journal:
    """Appends records. What a call has returned from survives a kill of the process.

    But on a full disk: then records wait in memory, in order, and are written with the first for which there is room.
    """

    def __init__(self, path: Path, fresh: bool = False) -> None:
        """Open `path` to append; `fresh` first puts an empty file in the place of what was there."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if fresh:
            # Replaced, not shortened: a reader has the old records or none, never half of one.
            write_bytes(path, b"")
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._waiting = b""
        self._lock = threading.Lock()
        self._end_torn_line()

    def step(self, step: int, metrics: Mapping[str, float], facts: Mapping[str, Any] | None = None) -> None:
        """Record the metrics of one optimizer step (or of an evaluation after it)."""
        values = {name: float(value) for name, value in metrics.items()}
        record = {"kind": "step", "time_s": time.time(), "step": step, "metrics": values}
        self._append(record | ({"facts": dict(facts)} if facts else {}))

    def event(self, text: str, level: Level = "info", name: str = "", **facts: Any) -> None:
        """Record something a reader of the run should know; `name` and `facts` are for programs."""
        record = {"kind": "event", "time_s": time.time(), "text": text, "level": level}
        self._append(record | ({"name": name, "facts": facts} if name else {}))

    def sync(self) -> bool:
        """Make what is written survive a power cut, too; whether that is all that was recorded.

        False on a full disk, where records wait.
        """
        with self._lock:
            self._waiting = _write_what_fits(self._descriptor, self._waiting)
            is_all_written = not self._waiting
        os.fsync(self._descriptor)
        return is_all_written

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._descriptor >= 0:
            self._waiting = _write_what_fits(self._descriptor, self._waiting)
            os.close(self._descriptor)
            self._descriptor = -1

    def _append(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"
        with self._lock:
            self._waiting = _write_what_fits(self._descriptor, self._waiting + line.encode())

    def _end_torn_line(self) -> None:
        size_bytes = os.fstat(self._descriptor).st_size
        if size_bytes and os.pread(self._descriptor, 1, size_bytes - 1) != b"\n":
            self._waiting = _write_what_fits(self._descriptor, b"\n")


class JournalTail:
    """Reads a growing journal piece by piece; a journal that does not exist yet is empty.

    A journal begun anew at the same path is read from its beginning.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset_bytes = 0
        self._head = b""
        """How the file read so far begins; records carry times, so two journals begin differently."""

    def new_records(self) -> list[JournalRecord]:
        """The whole lines written since the last call, in file order."""
        try:
            with self._path.open("rb") as file:
                # A freed inode may come back with the new file, so the inode alone tells nothing.
                if file.read(len(self._head)) != self._head or _size_bytes(file) < self._offset_bytes:
                    self._offset_bytes = 0
                    self._head = b""
                file.seek(self._offset_bytes)
                data = file.read()
        except FileNotFoundError:
            return []
        # What follows the last newline may still be in the writing.
        whole, newline, _ = data.rpartition(b"\n")
        read = whole + newline
        if self._offset_bytes == 0:
            self._head = read[:_HEAD_BYTES]
        self._offset_bytes += len(read)
        return [record for line in whole.split(b"\n") if (record := _parse(line)) is not None]


def read_journal(path: Path) -> list[JournalRecord]:
    """All whole records of the file in order; a missing file is an empty journal."""
    return JournalTail(path).new_records()


def metric_name(text: str) -> str:
    """`text` as the name of a metric, spelt with what MLflow takes: C++ is Cpp there, C# is Csharp."""
    spelt = "".join(_SPELT_OUT.get(character, character) for character in text)
    return re.sub(r"[^\w. -]", "_", spelt, flags=re.ASCII)


def _size_bytes(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _write_what_fits(descriptor: int, data: bytes) -> bytes:
    """One write; what is left over on a full disk, where a short write is followed by the error."""
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
    return data


def _parse(line: bytes) -> JournalRecord | None:
    """A record, or None for an empty or torn line."""
    try:
        record = json.loads(line)
        return JournalRecord(**record)
    except (ValueError, TypeError):
        return None
