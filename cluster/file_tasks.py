"""Tasks in a Ray session that each write a file: retried when their worker or node is lost."""

import errno
import math
import shutil
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.errors import RetryableError, UnfinishedError, UserError, first_line
from cluster.nodes import NodeWatch, node_selector, shared_marker, watched_nodes
from cluster.resources import available_text

_TASKS_PER_CPU = 2
"""Enough tasks in flight that a worker never waits for the driver."""
_MAX_ATTEMPTS = 10
_FIRST_PAUSE_S, _MAX_PAUSE_S, _RETRY_POLL_S = 0.25, 10.0, 0.1
_LOOK_S = 2.0
_SAY_EVERY_S = 30.0
_NOTES = ".running-"


@dataclass(frozen=True)
class FileTask:
    """A call that writes one file: `function(*arguments, output)`."""

    name: str
    output: Path
    arguments: tuple[Any, ...]


def run_file_tasks(
    function: Callable[..., None],
    tasks: Sequence[FileTask],
    on_done: Callable[[FileTask], None],
    *,
    on_retry: Callable[[str], None] = lambda reason: None,
    num_cpus: float = 1,
    max_in_flight: int | None = None,
) -> None:
    """Run every task whose output does not exist yet, in any order; needs an open session.

    `function` is a module-level function that writes its output atomically, so a task that is lost with its worker can
    be retried, after a pause that doubles; `on_retry` gets the reason. `on_done` is called in this process once for
    every task, run or skipped. A UserError raised in a task is raised here unchanged; the few tasks then in flight are
    not cancelled.
    """
    import ray

    missing = []
    for task in tasks:
        if task.output.exists():
            on_done(task)
        else:
            missing.append(task)
    if not missing:
        return
    queue = _RetryQueue(missing)
    folder = missing[0].output.parent
    done_s = said_s = time.monotonic()
    with shared_marker(folder) as marker, _notes_beside(marker) as notes, watched_nodes(on_retry) as nodes:
        running = _Running(function, num_cpus, max_in_flight, marker, notes, nodes)
        while running.tasks or not queue.is_empty():
            while running.may_have_more() and (following := queue.next_ready()) is not None:
                running.start(following)
            for task in running.take_back_lost():
                on_retry(
                    f"{task.name}: taken back from a lost node; trying again in {queue.put_back(task):g} s"
                )
            if not running.tasks:
                time.sleep(_RETRY_POLL_S)
                continue
            look_s = _LOOK_S if queue.has_pauses() or nodes is not None else _SAY_EVERY_S
            done, _ = ray.wait(list(running.tasks), num_returns=1, timeout=look_s)
            for reference in done:
                task = running.end(reference)
                done_s = said_s = time.monotonic()
                # Nothing is cancelled when this raises: ray.cancel(force=True) on a task that is just ending
                # aborts the driver (Ray 2.60, task_manager.cc), and the session's end stops them all.
                reason = _retry_reason(reference, task, queue.is_last_attempt(task))
                if reason is None:
                    on_done(task)
                else:
                    on_retry(f"{task.name}: {reason}; trying again in {queue.put_back(task):g} s")
            if not done and time.monotonic() - said_s >= _SAY_EVERY_S - 1:
                said_s = time.monotonic()
                on_retry(
                    f"no task has ended for {said_s - done_s:.0f} s: {len(running.tasks)} are submitted, "
                    f"{available_text()}"
                )


@contextmanager
def _notes_beside(marker: Path) -> Iterator[Path]:
    """Make a folder in which tasks note the nodes that they run on; those of killed commands are removed."""
    for left in marker.parent.glob(f"{_NOTES}*"):
        shutil.rmtree(left, ignore_errors=True)
    notes = marker.with_name(_NOTES + marker.name.lstrip("."))
    notes.mkdir()
    try:
        yield notes
    finally:
        shutil.rmtree(notes, ignore_errors=True)


class _Running:
    """The tasks that Ray has.

    Ray 2.60 learns late that a task has gone down with a machine without power: seen after 250 s with a machine that
    came back, and not within 390 s with one that did not. So each task notes its node, and is taken back when the watch
    says that the node is lost.
    """

    def __init__(
        self,
        function: Callable[..., None],
        num_cpus: float,
        most: int | None,
        marker: Path,
        notes: Path,
        nodes: NodeWatch | None,
    ) -> None:
        import ray

        # Retried here and not by Ray, so that there are pauses and `on_retry` is called.
        self._remote = ray.remote(num_cpus=num_cpus, max_retries=0)(_run_task)
        self._function, self._marker, self._notes, self._nodes = function, marker, notes, nodes
        self._known_losses: set[str] = set()
        self._num_cpus, self._most, self._limit = num_cpus, most, 1
        self._counted_s = -math.inf
        self._number = 0
        self._note_of: dict[Any, Path] = {}
        self.tasks: dict[Any, FileTask] = {}
        """By Ray's reference."""

    def may_have_more(self) -> bool:
        """Return whether Ray has less than it needs to keep all nodes busy, also those that have joined."""
        import ray

        if self._most is not None:
            return len(self.tasks) < self._most
        if time.monotonic() - self._counted_s >= _LOOK_S:
            self._counted_s = time.monotonic()
            self._limit = max(1, int(_TASKS_PER_CPU * ray.cluster_resources().get("CPU", 1) / self._num_cpus))
        return len(self.tasks) < self._limit

    def start(self, task: FileTask) -> None:
        """Submit a task, to a node that is not lost."""
        self._number += 1
        note = self._notes / str(self._number)
        selector = (
            {"label_selector": node_selector(self._known_losses, is_in=False)} if self._known_losses else {}
        )
        remote = self._remote.options(**selector)
        reference = remote.remote(self._function, self._marker, note, task.arguments, task.output)
        self.tasks[reference], self._note_of[reference] = task, note

    def take_back_lost(self) -> list[FileTask]:
        """Return the tasks on nodes that were lost since the last call, and those that were on their way to a node.

        One that runs all the same, cut off, writes the same bytes to the same file.
        """
        lost = set(self._nodes.lost_nodes()) if self._nodes is not None else set()
        new, self._known_losses = lost - self._known_losses, lost
        if not new:
            return []
        gone = [
            reference for reference in self.tasks if _noted_node(self._note_of[reference]) in (*new, None)
        ]
        return [self.end(reference) for reference in gone]

    def end(self, reference: Any) -> FileTask:
        """Forget and return a task."""
        del self._note_of[reference]
        return self.tasks.pop(reference)


def _noted_node(note: Path) -> str | None:
    try:
        return note.read_text() or None
    except OSError:
        return None


def _run_task(
    function: Callable[..., None], marker: Path, note: Path, arguments: tuple[Any, ...], output: Path
) -> None:
    """Run a task on some node, which must see the driver's folder: otherwise it would write to a disk of its own."""
    import ray

    if not marker.exists():
        node = socket.gethostname()
        raise OSError(
            errno.ESTALE, f"node {node} does not see the run's folder: mount the shared storage", str(output)
        )
    with suppress(FileNotFoundError):  # the command has ended
        note.write_text(ray.get_runtime_context().get_node_id())
    function(*arguments, output)


class _RetryQueue:
    """Tasks in order; those put back wait, each time twice as long, and then go first."""

    def __init__(self, tasks: Sequence[FileTask]) -> None:
        self._waiting = deque(tasks)
        self._pausing: list[tuple[float, FileTask]] = []
        self._num_failures: Counter[str] = Counter()

    def is_empty(self) -> bool:
        return not self._waiting and not self._pausing

    def has_pauses(self) -> bool:
        return bool(self._pausing)

    def is_last_attempt(self, task: FileTask) -> bool:
        return self._num_failures[task.name] + 1 >= _MAX_ATTEMPTS

    def next_ready(self) -> FileTask | None:
        """Remove and return the next task that need not wait; None if there is none now."""
        for position, (ready_s, task) in enumerate(self._pausing):
            if ready_s <= time.monotonic():
                del self._pausing[position]
                return task
        return self._waiting.popleft() if self._waiting else None

    def put_back(self, task: FileTask) -> float:
        """Count a failure and return the seconds until the task is ready again."""
        pause_s: float = min(_MAX_PAUSE_S, _FIRST_PAUSE_S * 2 ** self._num_failures[task.name])
        self._num_failures[task.name] += 1
        self._pausing.append((time.monotonic() + pause_s, task))
        return pause_s


def _retry_reason(reference: Any, task: FileTask, is_last_attempt: bool) -> str | None:
    """Return None if the task succeeded, the reason if it is to be retried; raise its error otherwise.

    A UserError is raised unchanged. Tasks of lost workers and nodes are retried, and so are those that failed with an
    error of the operating system, which on shared file systems may be temporary.
    """
    import ray

    try:
        ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        for kind in (UnfinishedError, UserError):
            if isinstance(error.cause, kind):
                raise kind(str(error.cause)) from None
        if isinstance(error.cause, RetryableError):
            raise RetryableError(str(error.cause), error.cause.kind) from None
        if isinstance(error.cause, OSError):
            if not is_last_attempt:
                return first_line(error.cause)
            if error.cause.errno in (errno.ESTALE, errno.EIO, errno.ENOTCONN):
                raise RetryableError(f"{task.name}: {first_line(error.cause)}", "storage") from None
        raise
    except ray.exceptions.OutOfMemoryError as error:
        if not is_last_attempt:
            return "the machine ran out of memory"
        raise RetryableError(
            f"{task.name}: stopped because the machine ran out of memory: "
            "use fewer Ray CPUs or a machine with more memory, then run the same command again",
            "out of memory",
        ) from error
    except (
        ray.exceptions.WorkerCrashedError,
        ray.exceptions.NodeDiedError,
        ray.exceptions.LocalRayletDiedError,
    ) as error:
        if not is_last_attempt:
            return "its worker died"
        raise RetryableError(
            f"{task.name}: its worker died {_MAX_ATTEMPTS} times ({first_line(error)}): "
            "see Ray's logs in the run's folder, then run the same command again",
            "lost worker",
        ) from error
    except ray.exceptions.RayError as error:
        raise RetryableError(
            f"Ray lost a process of its own ({first_line(error)}); run the same command again"
        ) from error
    return None
