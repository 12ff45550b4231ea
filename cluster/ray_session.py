"""Ray sessions, and tasks in them that each write a file."""

import errno
import logging
import os
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

import cluster
from cluster.config import Config
from cluster.errors import RetryableError, UnfinishedError, UserError, first_line
from cluster.local_ray import ENVIRONMENT, keep_logs, session_folder, start_local_ray, watch_session
from cluster.nodes import shared_marker, watched_nodes
from cluster.resources import available_text

MIB = 1 << 20
_MIN_CPUS = 2
"""Two training workers must fit on a one-core machine, too."""
_TASKS_PER_CPU = 2
"""Enough tasks in flight that a worker never waits for the driver."""
_MAX_ATTEMPTS = 10
_FIRST_PAUSE_S, _MAX_PAUSE_S, _RETRY_POLL_S = 0.25, 10.0, 0.1
_PROBE_TIMEOUT_S = 10
_SAY_EVERY_S = 30.0


class RayConfig(Config):
    """The size of the local Ray; a cluster named by RAY_ADDRESS is used as it is."""

    num_cpus: int | None = Field(default=None, ge=1)
    """Logical CPUs; None means the CPUs that this process may use, but at least 2."""


@dataclass(frozen=True)
class FileTask:
    """A call that writes one file: `function(*arguments, output)`."""

    name: str
    output: Path
    arguments: tuple[Any, ...]


@contextmanager
def ray_session(
    config: RayConfig, log_folder: Path, on_retry: Callable[[str], None] = lambda reason: None
) -> Iterator[None]:
    """Open a session, of a local Ray or of the cluster named by RAY_ADDRESS, while the block runs.

    Ray prints nothing to the terminal; its logs are in `log_folder`/ray when the block has ended. The local Ray
    listens on loopback only and ends with the block, and with this process even if that is killed. Its start is
    retried when it takes too long; `on_retry` gets the reason. UserError when Ray refuses to start or the cluster
    refuses the token, RetryableError when no cluster answers, Ray does not start in time or the local Ray loses its gcs
    or its raylet.
    """
    log_folder.mkdir(parents=True, exist_ok=True)
    address = os.environ.get("RAY_ADDRESS", "")
    with _set_startup_environment({} if address else ENVIRONMENT):
        import ray  # reads some of its settings here

        if ray.is_initialized():
            raise RuntimeError("a Ray session is already open in this process")
        if address:
            _connect(address)
        else:
            num_cpus = config.num_cpus or max(_MIN_CPUS, len(os.sched_getaffinity(0)))
            start_local_ray(num_cpus, log_folder / "ray", on_retry)
    session = session_folder()
    _log_to_file(log_folder / "ray-driver.log")
    try:
        with nullcontext() if address else watch_session():
            yield
    finally:
        ray.shutdown()
        if session is not None:
            keep_logs(session, log_folder / "ray")


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
    # Retried here and not by Ray, so that there are pauses and `on_retry` is called.
    remote = ray.remote(num_cpus=num_cpus, max_retries=0)(_run_task)
    limit = max_in_flight or max(1, int(_TASKS_PER_CPU * ray.cluster_resources().get("CPU", 1) / num_cpus))
    running: dict[Any, FileTask] = {}
    queue = _RetryQueue(missing)
    done_s = said_s = time.monotonic()
    with shared_marker(missing[0].output.parent) as marker, watched_nodes(on_retry):
        while running or not queue.is_empty():
            while len(running) < limit and (following := queue.next_ready()) is not None:
                arguments = (function, marker, following.arguments, following.output)
                running[remote.remote(*arguments)] = following
            if not running:
                time.sleep(_RETRY_POLL_S)
                continue
            done, _ = ray.wait(
                list(running), num_returns=1, timeout=1.0 if queue.has_pauses() else _SAY_EVERY_S
            )
            for reference in done:
                task = running.pop(reference)
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
                    f"no task has ended for {said_s - done_s:.0f} s: {len(running)} are submitted, {available_text()}"
                )


def _run_task(function: Callable[..., None], marker: Path, arguments: tuple[Any, ...], output: Path) -> None:
    """Run a task on some node, which must see the driver's folder: otherwise it would write to a disk of its own."""
    if not marker.exists():
        node = socket.gethostname()
        raise OSError(
            errno.ESTALE, f"node {node} does not see the run's folder: mount the shared storage", str(output)
        )
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


def _connect(address: str) -> None:
    import ray
    from ray.exceptions import AuthenticationError

    try:
        # Where nothing listens at HOST:PORT, Ray itself would try for more than five minutes.
        host, colon, port = address.rpartition(":")
        if colon and port.isdigit() and "://" not in address:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_TIMEOUT_S).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except AuthenticationError as error:
        ray.shutdown()
        raise UserError(
            f"the cluster at RAY_ADDRESS={address} refuses the token: set RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH, to "
            "its own"
        ) from error
    except ValueError as error:
        ray.shutdown()
        raise UserError(
            f"RAY_ADDRESS={address} is no address ({first_line(error)}): give HOST:PORT"
        ) from error
    except (RuntimeError, OSError) as error:
        ray.shutdown()
        raise RetryableError(
            f"no Ray cluster answers at RAY_ADDRESS={address} ({first_line(error)}): start it or unset RAY_ADDRESS",
            "lost cluster",
        ) from error


@contextmanager
def _set_startup_environment(defaults: Mapping[str, str]) -> Iterator[None]:
    """Set the environment that Ray's processes inherit at their start; restore this process's own after the block.

    Our packages are put on PYTHONPATH so that workers find them when the tree is not installed. `defaults` apply
    to variables that the user has not set.
    """
    root = str(Path(cluster.__file__).resolve().parent.parent)
    python_path = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    wanted = {
        "PYTHONPATH": os.pathsep.join(python_path),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "TOKENIZERS_PARALLELISM": "false",
        **{name: os.environ.get(name, value) for name, value in defaults.items()},
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _log_to_file(path: Path) -> None:
    """Send this process's Ray log lines to `path` instead of the terminal."""
    import ray

    logger = logging.getLogger("ray")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False
    # What Ray's daemons report to the driver, as the death of a worker, goes to stdout, and Ray 2.60 has no option
    # against that.
    ray._private.worker.print_to_stdstream = _log_lines


def _log_lines(data: Mapping[str, Any], ignore_prefix: bool) -> None:
    logging.getLogger("ray").warning("%s", "\n".join(data["lines"]))
