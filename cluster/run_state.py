"""What a command is doing, in a file of its run's folder, for readers on any machine that sees the storage.

`.state.json` is written again at most every 2 s, when something has changed. It has no times that would have to be
compared with another clock: the folder's lease shows whether the command is alive.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cluster import structured_log
from cluster.errors import UserError, first_line
from cluster.storage import read_document, write_document

STATE_NAME = ".state.json"
_WRITE_EVERY_S = 2.0


@dataclass(frozen=True)
class WorkProgress:
    """How far one piece of work is, as its progress bar shows it."""

    label: str
    done: float
    total: float
    unit: str
    note: str = ""


@dataclass(frozen=True)
class RunState:
    """The content of `.state.json`."""

    job: str = ""
    stage: str = ""
    attempt: int | None = None
    """The number of the attempt whose workers run, or of the last one."""
    num_workers: int = 0
    waiting_for: str = ""
    """What the command waits for; "" while it works."""
    lost_nodes: tuple[str, ...] = ()
    """Names of the nodes that were lost and have not come back."""
    progress: WorkProgress | None = None
    ended: str = ""
    """"finished", or why the command ended; "" before its end."""


@dataclass
class _Writer:
    """The file of this process."""

    path: Path | None = None
    state: RunState = field(default_factory=RunState)
    written: RunState | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self) -> None:
        with self.lock:
            if self.path is None or self.state == self.written:
                return
            state = self.state
            with suppress(OSError, UserError):  # a full disk must not end a run
                write_document(self.path, asdict(state))
                self.written = state


_writer = _Writer()


def change(**fields: Any) -> None:
    """Change fields of the state; costs nothing much, and does nothing in a process that writes no state."""
    with _writer.lock:
        _writer.state = replace(_writer.state, **fields)


def change_nodes(lost: Sequence[str]) -> None:
    """Note the names of the nodes that are lost now."""
    change(lost_nodes=tuple(lost))


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Note that the command waits during the block."""
    change(waiting_for=what)
    try:
        yield
    finally:
        change(waiting_for="")


@contextmanager
def written_to(folder: Path) -> Iterator[None]:
    """Keep `folder`/.state.json up to date during the block, which belongs to this process."""
    _writer.path, _writer.written = folder / STATE_NAME, None
    _writer.state = RunState(job=structured_log.job_id())
    ended = threading.Event()
    thread = threading.Thread(target=_write_until, args=(ended,), name="run-state", daemon=True)
    _writer.write()
    thread.start()
    reason = "finished"
    try:
        yield
    except BaseException as error:
        reason = "interrupted" if isinstance(error, KeyboardInterrupt) else first_line(error)
        raise
    finally:
        ended.set()
        thread.join(timeout=_WRITE_EVERY_S)  # behind storage that does not answer it may hang
        change(ended=reason, num_workers=0, waiting_for="")
        if not thread.is_alive():
            _writer.write()
        _writer.path = None


def read_state(folder: Path) -> RunState | None:
    """Return the state of the newest command in `folder`; None before the first, or if a newer version wrote it."""
    try:
        found: Mapping[str, Any] = read_document(folder / STATE_NAME)
        progress = found.get("progress")
        lost = tuple(found.get("lost_nodes", ()))
        return RunState(
            **{**found, "lost_nodes": lost, "progress": WorkProgress(**progress) if progress else None}
        )
    except (FileNotFoundError, TypeError):
        return None


def _write_until(ended: threading.Event) -> None:
    while not ended.wait(_WRITE_EVERY_S):
        _writer.write()
