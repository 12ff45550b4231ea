"""Structured logs: one JSON object per line and event, in a file of each process and attempt.

The command writes `logs/events/command-TIME-HOST-PID.jsonl` in the run's folder, a training worker writes
`logs/events/STAGE-KEY/attempt-0001/rank-00000.jsonl`. Files are only appended to. Every line has these fields:

- time: UTC, ISO 8601 with milliseconds, on the writer's clock
- level: "info", "warning" or "error"
- message: one line for people
- run: the path of the run's folder
- job: the id of the Ray or Slurm job in which the command runs; "" outside a job
- stage: the name of the stage; "" outside a stage
- system: of an experiment, SYSTEM/seed-N; otherwise ""
- rank: the worker's number; null in the command itself
- attempt: the number of the lease under which the workers run; null outside an attempt
- step: the newest step of this process; null before the first one
- host, pid: of the process
- logger, traceback: only for messages of libraries, and only for errors
"""

import json
import logging
import os
import re
import socket
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

LogLevel = Literal["info", "warning", "error"]
EVENTS = "events"
"""The folder of these files in a run's folder of logs."""
_RAY_JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Set by Ray's job server for the command that it starts, with the submission id in it."""


@dataclass(frozen=True)
class Place:
    """Where in the work a process is: the fields that its log lines and metrics have in common."""

    run: str = ""
    job: str = ""
    stage: str = ""
    system: str = ""
    rank: int | None = None
    attempt: int | None = None
    step: int | None = None


class _Process:
    """The place and the log file of this process."""

    def __init__(self) -> None:
        self.place = Place()
        self.path: Path | None = None
        self.descriptor: int | None = None
        self.lock = threading.Lock()


_process = _Process()


def place() -> Place:
    """Return where this process is in the work."""
    return _process.place


def at_step(step: int) -> None:
    """Note the newest step of this process."""
    _process.place = replace(_process.place, step=step)


def is_open() -> bool:
    """Return whether this process has a log."""
    return _process.path is not None


@contextmanager
def at(**fields: Any) -> Iterator[None]:
    """Change fields of the place during the block."""
    before = _process.place
    _process.place = replace(before, **fields)
    try:
        yield
    finally:
        _process.place = replace(_process.place, **{name: getattr(before, name) for name in fields})


def job_id() -> str:
    """Return the id of the Ray or Slurm job in which this process was started, "" outside a job."""
    with suppress(ValueError, AttributeError):
        metadata = json.loads(os.environ.get(_RAY_JOB_VARIABLE, "{}")).get("metadata", {})
        if found := metadata.get("job_submission_id"):
            return str(found)
    return os.environ.get("SLURM_JOB_ID", "")


def command_log(logs: Path) -> Path:
    """Return the path of a new file for this command."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    host = re.sub(r"[^\w.-]", "_", socket.gethostname())
    return logs / EVENTS / f"command-{now}-{host}-{os.getpid()}.jsonl"


def attempt_logs(stage_folder: Path, attempt: int, group: int = 1) -> Path:
    """Return the folder of the files of one attempt of a group of workers."""
    logs = stage_folder.parent / "logs" / EVENTS / stage_folder.name
    return (logs if group == 1 else logs / f"group-{group}") / f"attempt-{attempt:04d}"


def worker_log(attempt_logs: Path, rank: int) -> Path:
    """Return the path of a worker's file for one attempt."""
    return attempt_logs / f"rank-{rank:05d}.jsonl"


@contextmanager
def logged_to(path: Path, start: Place) -> Iterator[None]:
    """Write this process's events to `path` during the block, with those that libraries log as warnings or errors.

    The file is made with the first event. An error that ends the block is the last event.
    """
    before = _process.place, _process.path
    _process.place, _process.path = start, path
    handler = _Handler(logging.WARNING)
    logging.getLogger().addHandler(handler)
    try:
        yield
    except BaseException as error:
        text = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
        is_order = isinstance(error, KeyboardInterrupt)
        stack = {} if is_order else {"traceback": "".join(traceback.format_exception(error))}
        event(text, "warning" if is_order else "error", **stack)
        raise
    finally:
        logging.getLogger().removeHandler(handler)
        with _process.lock:
            if _process.descriptor is not None:
                os.close(_process.descriptor)
            _process.descriptor = None
            _process.place, _process.path = before


def event(message: str, level: LogLevel = "info", **more: Any) -> None:
    """Write an event; does nothing in a process without a log. A full disk loses it."""
    if not is_open():
        return
    line = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": level,
        "message": message,
        **asdict(_process.place),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        **more,
    }
    with _process.lock, suppress(OSError):
        path = _process.path
        if path is None:
            return
        if _process.descriptor is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            _process.descriptor = os.open(path, flags, 0o644)
        # One write per line: a kill leaves whole lines.
        os.write(_process.descriptor, (json.dumps(line, ensure_ascii=False) + "\n").encode())


class _Handler(logging.Handler):
    """Turns what libraries log into events."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):  # a message that cannot be formatted must not disturb its library
            level: LogLevel = "error" if record.levelno >= logging.ERROR else "warning"
            event(" ".join(record.getMessage().split()), level, logger=record.name)
