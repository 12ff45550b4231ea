"""The Ray that permcode starts on its own machine: private, on loopback only, started with retries, watched.

What Ray 2.60 listens on, by its source and by test: all its processes use the head's address, and with a loopback
address they listen there only; `ray.init` replaces a loopback address by another one unless Ray thinks it is on a
system that does not support clusters.
"""

import logging
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import psutil

from cluster.errors import RetryableError, UserError, first_line
from cluster.storage import make_private_folder
from cluster.watch import watch_block

ENVIRONMENT = {
    # Ray's own timeouts are 30 s each, too short for a busy machine. The second one is also how long an attempt lasts
    # whose raylet gave up, as it does after 30 s without its agents.
    "RAY_gcs_server_port_wait_time_s": "120",
    "RAY_raylet_start_wait_time_s": "45",
    # Otherwise metrics are served to anyone on an open port.
    "RAY_enable_metrics_collection": "0",
    # The watcher is one more process per training and takes seconds to start; one machine is not preempted in part.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
}
"""Environment of Ray's processes on this machine, where the user has not set these variables."""
_NUM_STARTS = 5
_FIRST_PAUSE_S = 5.0
_SESSION_PATH_CHARS = 64
"""The longest socket path below it: /session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store."""
_SOCKET_PATH_CHARS = 107
_STALE_SESSION_S = 3600
_KEPT_LOG_BYTES = 4 << 20
_OBJECT_STORE_BYTES = 256 << 20
"""Shared memory for objects; files travel by path, so it can be small."""


def start_local_ray(num_cpus: int, kept_logs: Path, on_retry: Callable[[str], None]) -> None:
    """Start a Ray of this process's own and open a session. To be called with `ENVIRONMENT` set.

    A start that fails is cleaned up and retried after a pause that doubles; `on_retry` gets the reason. UserError when
    Ray refuses the settings or a file cannot be written, RetryableError when no attempt succeeds; the logs of the last
    attempt are then in `kept_logs`.
    """
    import ray

    if "RAY_AUTH_MODE" not in os.environ:
        # Otherwise Ray would write a world-readable token to the home folder. It stays set for the life of the
        # process because Ray reads it once.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    temp_folder = make_private_temp_folder()
    _remove_stale_sessions(temp_folder)
    pause_s = _FIRST_PAUSE_S
    for attempt in range(1, _NUM_STARTS + 1):
        try:
            with _force_loopback():
                ray.init(
                    address="local",
                    num_cpus=num_cpus,
                    object_store_memory=_OBJECT_STORE_BYTES,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    _temp_dir=str(temp_folder),
                )
            return
        except Exception as error:  # Ray's timeouts are plain Exceptions
            ray.shutdown()
            _remove_failed_start(temp_folder, kept_logs)
            reason = first_line(error)
            may_pass = isinstance(error, (ConnectionError, TimeoutError))
            if isinstance(error, (ValueError, OSError)) and not may_pass:
                raise UserError(
                    f"the local Ray did not start ({reason}): `permcode doctor` checks what it needs"
                ) from error
            if attempt == _NUM_STARTS:
                raise RetryableError(
                    f"the local Ray did not start in {_NUM_STARTS} attempts ({reason}): the machine may be too busy. "
                    f"Run the same command again; `permcode doctor` checks what Ray needs, its logs are in {kept_logs}"
                ) from error
            on_retry(f"the local Ray did not start ({reason}); trying again in {pause_s:g} s")
            time.sleep(pause_s)
            pause_s *= 2


def make_private_temp_folder() -> Path:
    """Return the folder for Ray's sessions, in a private folder of this user's that is created if needed.

    The private parent is needed because Ray opens its own folder to all users (0777). The path is short because the
    length of socket paths is limited.
    """
    folder = Path(tempfile.gettempdir())
    name = f"permcode-ray-{os.getuid()}"
    if len(str(folder / name / "ray")) > _SOCKET_PATH_CHARS - _SESSION_PATH_CHARS:
        folder = Path("/tmp")
    own = folder / name
    if not make_private_folder(own):  # the name is taken by another user
        own = Path(tempfile.mkdtemp(prefix="permcode-", dir=folder))
    return own / "ray"


def session_folder() -> Path | None:
    """Return the open session's folder if this process started Ray; None on a cluster."""
    import ray

    node = ray._private.worker._global_node
    return Path(node.get_session_dir_path()) if node is not None and node.head else None


def keep_logs(session: Path, target: Path) -> None:
    """Move the session's logs (the last 4 MiB of each) to `target` and remove the rest of the session.

    Logs that cannot be kept, as on a full disk, are lost: the error that ended the session must not be hidden.
    """
    with suppress(OSError):
        _copy_logs(session / "logs", target)
    shutil.rmtree(session, ignore_errors=True)


def watch_session() -> AbstractContextManager[None]:
    """End the block within seconds, with a RetryableError, when the local Ray's gcs or raylet dies.

    Ray itself would wait for ever (raylet) or abort this process after a minute (gcs). The session is closed when the
    block ends.
    """
    import ray

    started = ray._private.worker._global_node.all_processes
    processes = {kind: started[kind][0].process for kind in ("gcs_server", "raylet")}

    def look() -> RetryableError | None:
        lost = ", ".join(kind for kind, process in processes.items() if process.poll() is not None)
        text = f"Ray lost a process of its own ({lost} ended); run the same command again"
        return RetryableError(text) if lost else None

    return watch_block(look, close=ray.shutdown)


@contextmanager
def _force_loopback() -> Iterator[None]:
    """Make Ray use 127.0.0.1 as this machine's address while the block runs."""
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _remove_failed_start(temp_folder: Path, kept_logs: Path) -> None:
    """Kill the processes of this process's failed start, keep its logs and remove its session."""
    for session in sorted(temp_folder.glob(f"session_*_{os.getpid()}")):
        for process in _processes_of(session):
            with suppress(psutil.Error):
                process.kill()
        keep_logs(session, kept_logs)


def _processes_of(session: Path) -> list[psutil.Process]:
    """Return our processes whose arguments name the session, including orphans of a dead raylet, and their children."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            is_ours = process.ppid() in (1, os.getpid()) and any(
                str(session) in part for part in process.cmdline()
            )
            if is_ours and process.pid != os.getpid():
                found |= {one.pid: one for one in (process, *process.children(recursive=True))}
    return list(found.values())


def _remove_stale_sessions(temp_folder: Path) -> None:
    """Remove sessions of killed drivers: those whose process (the last part of the name) no longer exists."""
    for session in temp_folder.glob("session_*_*"):
        pid = session.name.rpartition("_")[2]
        if not pid.isdigit() or Path(f"/proc/{pid}").exists():
            continue
        with suppress(FileNotFoundError):  # another driver may remove it at the same time
            if time.time() - session.stat().st_mtime > _STALE_SESSION_S:
                shutil.rmtree(session, ignore_errors=True)


def _copy_logs(logs: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    for log in sorted(logs.rglob("*")):
        if not log.is_file() or log.is_symlink() or log.stat().st_size == 0:
            continue
        kept = target / log.relative_to(logs)
        kept.parent.mkdir(parents=True, exist_ok=True)
        with log.open("rb") as source, kept.open("wb") as destination:
            source.seek(max(0, log.stat().st_size - _KEPT_LOG_BYTES))
            shutil.copyfileobj(source, destination)
