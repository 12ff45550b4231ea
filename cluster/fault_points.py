"""Points at which a test can kill a process: around every write, fsync and rename that matters.

In ordinary use a fault point does nothing. With `PERMCODE_FAULT=NAME:COUNT` (or `NAME:COUNT:RANK`) in its
environment a process (of that rank) kills itself, as `kill -9` would, when it reaches that point for the COUNT-th time.
With `PERMCODE_FAULT_LOG=FILE` it appends one line for each point it reaches; each line is a value of PERMCODE_FAULT
that kills there.
"""

import os
import signal
import threading
from collections import Counter

FAULT_POINTS = (
    # An atomic write of a file (cluster.storage.atomic_file).
    "file.opened",
    "file.written",
    "file.synced",
    "file.renamed",
    "file.durable",
    # MLflow's SQLite file is created, migrated or set aside (cluster/sqlite_store.py); a point before each statement.
    "store.set_aside",
    "store.copied",
    "store.statement",
    "store.migrated",
    "store.synced",
    "store.renamed",
    # An attempt starts or resumes a run (pretrain/worker.py, pretrain/pretrainer.py).
    "attempt.recorded",
    "start.agreed",
    "start.restored",
    # An optimizer step and its record in the journal (pretrain/trainer.py and recorder.py).
    "step.computed",
    "step.updated",
    "step.exchanged",
    "step.recorded",
    # A checkpoint is saved (pretrain/checkpoint/): on every rank ...
    "checkpoint.begun",
    "checkpoint.folder_made",
    "checkpoint.tensors_opened",
    "checkpoint.tensors_torn",
    "checkpoint.tensors_written",
    "checkpoint.tensors_synced",
    "checkpoint.part_left",
    # ... and on rank 0, when the parts of all ranks are there.
    "checkpoint.parts_found",
    "checkpoint.listed",
    "checkpoint.folder_synced",
    "checkpoint.damaged_moved",
    "checkpoint.renamed",
    "checkpoint.published",
    "checkpoint.old_moved",
    "checkpoint.old_removed",
)
"""All fault points, in the order in which a process reaches them."""

_lock = threading.Lock()
_reached: Counter[str] = Counter()


def fault_point(name: str) -> None:
    """Kill this process if the environment asks for it; otherwise costs two look-ups. Thread-safe."""
    wanted, log = os.environ.get("PERMCODE_FAULT"), os.environ.get("PERMCODE_FAULT_LOG")
    if not wanted and not log:
        return
    rank = os.environ.get("RANK", "0")
    with _lock:
        _reached[name] += 1
        count = _reached[name]
    if log:
        _append(log, f"{name}:{count}:{rank}\n")
    if wanted and _is_here(wanted, name, count, rank):
        os.kill(os.getpid(), signal.SIGKILL)


def _is_here(wanted: str, name: str, count: int, rank: str) -> bool:
    """Return whether `wanted` (NAME:COUNT or NAME:COUNT:RANK) is this point.

    ValueError for a name that is no fault point: a test that never kills would prove nothing.
    """
    wanted_name, wanted_count, *wanted_rank = wanted.split(":")
    if wanted_name not in FAULT_POINTS:
        raise ValueError(f"PERMCODE_FAULT={wanted}: no such fault point")
    return wanted_name == name and int(wanted_count) == count and wanted_rank in ([], [rank])


def _append(path: str, line: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)
