"""The append-only truth of a training run: one JSON line per step or event.

Anybody may read while one writes. Each line is one `write` on an O_APPEND descriptor, so lines of several
writers never mix; a line torn by a kill is skipped by readers, and the next writer marks it and starts a fresh line.

Every line ends with `"check"`: the CRC-32 of the record, begun with the check of the line before it, or of one a little
further back where several write at the same moment. So every reader finds a line that was changed, removed or moved.
Lines missing at the end can only be seen from what was written after them: commits and STAGE.json.
"""

import errno
import json
import os
import re
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cluster.errors import UserError
from cluster.storage import write_bytes

JOURNAL_NAME = "journal.jsonl"
"""Of the journal in the folder of what is trained."""
Level = Literal["info", "warning"]
_HEAD_BYTES = 256
_CHECK = re.compile(rb',"check":"([0-9a-f]{8})"\}$')
_FIRST_CHECK = 0
_TORN = b"\x18"
"""Ends a line that a kill tore; JSON has it nowhere."""
_RECENT_LINES = 4096
"""Behind any of these may the next line stand: others may write between a writer's look at the file and its write."""
_TAIL_BYTES = 1 << 20
"""More than any line has."""
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
    """Of an event that programs look for, such as "start" or "checkpoint"."""
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
        self._check = self._end_torn_line()
        """Of the line before the next one."""
        self._end_bytes = os.fstat(self._descriptor).st_size
        """Where this writer's last line ends; further on are other writers' lines."""

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
        """Sync the file, so that written records survive a power cut; return whether all records are written.

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
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
        with self._lock:
            if not self._waiting and os.fstat(self._descriptor).st_size != self._end_bytes:
                self._check = self._end_torn_line()
            # The check covers the lines before this one, too.
            self._check = zlib.crc32(text, self._check)
            line = text[:-1] + b',"check":"%08x"}\n' % self._check
            self._waiting = _write_what_fits(self._descriptor, self._waiting + line)
            self._end_bytes = os.lseek(self._descriptor, 0, os.SEEK_CUR)

    def _end_torn_line(self) -> int:
        """Make the file end with a line's end; returns the check of its last whole line."""
        size_bytes = os.fstat(self._descriptor).st_size
        start = max(0, size_bytes - _TAIL_BYTES)
        whole, _, last = os.pread(self._descriptor, size_bytes - start, start).rpartition(b"\n")
        if last:
            is_whole = _CHECK.search(last) is not None  # only its newline is missing
            self._waiting = _write_what_fits(self._descriptor, b"\n" if is_whole else _TORN + b"\n")
            whole = last if is_whole else whole
        lines = (line for line in reversed(whole.split(b"\n")) if line and not line.endswith(_TORN))
        return next((_stored_check(line) for line in lines), _FIRST_CHECK)


class JournalTail:
    """Reads a growing journal piece by piece; a journal that does not exist yet is empty.

    A journal begun anew at the same path is read from its beginning.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset_bytes = 0
        self._head = b""
        """How the file read so far begins; records carry times, so two journals begin differently."""
        self._checker = _Checker(path)

    def new_records(self) -> list[JournalRecord]:
        """Return the records of the whole lines written since the last call, in file order.

        Raises UserError if a line was changed, or one is missing before it.
        """
        try:
            with self._path.open("rb") as file:
                # A freed inode may come back with the new file, so the inode alone tells nothing.
                is_same = file.read(len(self._head)) == self._head
                if not is_same or os.fstat(file.fileno()).st_size < self._offset_bytes:
                    self._offset_bytes = 0
                    self._head = b""
                    self._checker = _Checker(self._path)
                file.seek(self._offset_bytes)
                data = file.read()
        except FileNotFoundError:
            return []
        # What follows the last newline may still be in the writing.
        whole, newline, rest = data.rpartition(b"\n")
        records = list(self._checker.records(whole.split(b"\n"))) if newline else []
        self._checker.check_rest(rest)
        read = whole + newline
        if self._offset_bytes == 0:
            self._head = read[:_HEAD_BYTES]
        self._offset_bytes += len(read)
        return records


class _Checker:
    """Takes a journal's whole lines in file order and gives the records of those that are what was written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._num_lines = 0
        self._recent = deque([_FIRST_CHECK], maxlen=_RECENT_LINES)
        """Checks of the last lines, any of which the next line of a writer may follow."""
        self._is_checked = False
        """Whether there was a line with a check: older versions wrote none."""

    def records(self, lines: list[bytes]) -> Iterator[JournalRecord]:
        """Yield the records of the next whole lines. Raises UserError for a damaged line."""
        for line in lines:
            self._num_lines += 1
            if not line or line.endswith(_TORN):
                continue
            found = _CHECK.search(line)
            record = self._unchecked(line) if found is None else self._checked(line, found)
            if record is not None:
                yield record

    def check_rest(self, rest: bytes) -> None:
        """Raise UserError if what follows the last newline is a whole line and one byte: that was its newline."""
        if _CHECK.search(rest[:-1]) is not None:
            self._num_lines += 1
            raise self._damaged("it was changed")

    def _checked(self, line: bytes, found: re.Match[bytes]) -> JournalRecord:
        text, check = line[: found.start()] + b"}", int(found[1], 16)
        if zlib.crc32(text, self._recent[-1]) != check and not self._follows_an_earlier_line(text, check):
            raise self._damaged("it was changed, or lines before it were removed or moved")
        self._recent.append(check)
        self._is_checked = True
        try:
            return JournalRecord(**json.loads(text))
        except (ValueError, TypeError):
            raise self._damaged("this permcode does not know its keys") from None

    def _follows_an_earlier_line(self, text: bytes, check: int) -> bool:
        """Return whether a line follows a recent line that is not the last, as when two attempts write at once."""
        is_new = check not in self._recent
        return is_new and any(zlib.crc32(text, before) == check for before in reversed(self._recent))

    def _unchecked(self, line: bytes) -> JournalRecord | None:
        """Return the record of a line of an older version, None for a torn line, which older versions did not mark."""
        if self._is_checked:
            raise self._damaged("it was changed")
        self._recent.append(_stored_check(line))
        try:
            return JournalRecord(**json.loads(line))
        except ValueError:
            return None
        except TypeError:
            raise self._damaged("it was changed") from None

    def _damaged(self, problem: str) -> UserError:
        return UserError(
            f"{self._path} is damaged (line {self._num_lines}: {problem}): restore it from a copy, or move it away to "
            "go on from the newest checkpoint without the record of what came before"
        )


def read_journal(path: Path) -> list[JournalRecord]:
    """Return all whole records of the file in order; [] if it is missing. Raises UserError if it is damaged."""
    return JournalTail(path).new_records()


def metric_name(text: str) -> str:
    """Return `text` as the name of a metric with the characters that MLflow accepts: C++ is Cpp there, C# is Csharp."""
    spelt = "".join(_SPELT_OUT.get(character, character) for character in text)
    return re.sub(r"[^\w. -]", "_", spelt, flags=re.ASCII)


def _write_what_fits(descriptor: int, data: bytes) -> bytes:
    """Write `data`; return the rest that does not fit on a full disk, where a short write precedes the error."""
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
    return data


def _stored_check(line: bytes) -> int:
    """Return a line's check, or the CRC-32 of the whole line for a line of an older version."""
    found = _CHECK.search(line)
    return int(found[1], 16) if found else zlib.crc32(line)
