"""The Ray that permcode starts on its own machine: private, on loopback alone, started with patience, watched.

Ray 2.60 was read and tried for what it listens on: all its processes take over the head's address, and those of
loopback listen there only; `ray.init` replaces a loopback address by another one unless Ray thinks it is on a system
without clusters.
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
from cluster.storage import is_private_folder
from cluster.watch import ended_by_loss

ENVIRONMENT = {
    # Ray's own waits, of 30 s each: too short for a machine that does other work. The second one is also how long an
    # attempt lasts whose raylet gave up, as it does after 30 s without its agents.
    "RAY_gcs_server_port_wait_time_s": "120",
    "RAY_raylet_start_wait_time_s": "45",
    # Otherwise a port that tells everybody who asks.
    "RAY_enable_metrics_collection": "0",
    # A process for every training, which takes seconds to start: one machine is not preempted part by part.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
}
"""For Ray's processes of this machine, where the user has not set them."""
_NUM_STARTS = 5
_FIRST_PAUSE_S = 5.0
_SESSION_PATH_CHARS = 64
"""Of the longest socket: /session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store."""
_SOCKET_PATH_CHARS = 107
_STALE_SESSION_S = 3600
_KEPT_LOG_BYTES = 4 << 20


def start_local_ray(
    num_cpus: int, object_store_bytes: int, kept_logs: Path, on_retry: Callable[[str], None]
) -> None:
    """Open a session with a Ray of its own. To be called with `ENVIRONMENT` set.

    A start that fails is tried again after a pause that doubles, without what is left of it; `on_retry` is told why.
    UserError where Ray refuses the settings or a file cannot be written, RetryableError when no attempt succeeds; the
    last one's logs are then in `kept_logs`.
    """
    import ray

    if "RAY_AUTH_MODE" not in os.environ:
        # Ray would otherwise write a token that everybody can read to the home folder. Kept for the whole
        # process because Ray reads it once.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    temp_folder = private_temp_folder()
    _sweep_stale_sessions(temp_folder)
    pause_s = _FIRST_PAUSE_S
    for attempt in range(1, _NUM_STARTS + 1):
        try:
            with _loopback_addresses():
                ray.init(
                    address="local",
                    num_cpus=num_cpus,
                    object_store_memory=object_store_bytes,
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
            on_retry(f"the local Ray did not start ({reason}); tried again in {pause_s:g} s")
            time.sleep(pause_s)
            pause_s *= 2


def private_temp_folder() -> Path:
    """Where Ray puts its sessions: below a folder of this user's that is closed to all others.

    Ray opens its own folder to everybody (0777). Short, for the paths of sockets.
    """
    folder = Path(tempfile.gettempdir())
    name = f"permcode-ray-{os.getuid()}"
    if len(str(folder / name / "ray")) > _SOCKET_PATH_CHARS - _SESSION_PATH_CHARS:
        folder = Path("/tmp")
    own = folder / name
    if not is_private_folder(own):  # somebody else was there first
        own = Path(tempfile.mkdtemp(prefix="permcode-", dir=folder))
    return own / "ray"


def session_folder() -> Path | None:
    """The open session's folder where Ray is this process's own; None on a cluster."""
    import ray

    node = ray._private.worker._global_node
    return Path(node.get_session_dir_path()) if node is not None and node.head else None


def keep_logs(session: Path, target: Path) -> None:
    """Move the session's logs (their tails, if long) to `target`; drop the rest of the session.

    Logs that cannot be kept, as on a full disk, are given up: what ended the session matters more.
    """
    with suppress(OSError):
        _copy_logs(session / "logs", target)
    shutil.rmtree(session, ignore_errors=True)


def watched_session() -> AbstractContextManager[None]:
    """A block that ends within seconds, with a RetryableError, where the local Ray's gcs or raylet dies.

    Ray itself would wait for ever (raylet) or abort this process after a minute (gcs). Closes the session.
    """
    import ray

    started = ray._private.worker._global_node.all_processes
    processes = {kind: started[kind][0].process for kind in ("gcs_server", "raylet")}

    def look() -> RetryableError | None:
        lost = ", ".join(kind for kind, process in processes.items() if process.poll() is not None)
        text = f"Ray lost a process of its own ({lost} ended); run the same command again"
        return RetryableError(text) if lost else None

    return ended_by_loss(look, close=ray.shutdown)


@contextmanager
def _loopback_addresses() -> Iterator[None]:
    """Have Ray take 127.0.0.1 for this machine's address while it starts."""
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _remove_failed_start(temp_folder: Path, kept_logs: Path) -> None:
    """Kill what a start of this process has left, keep its logs and remove its session."""
    for session in sorted(temp_folder.glob(f"session_*_{os.getpid()}")):
        for process in _processes_of(session):
            with suppress(psutil.Error):
                process.kill()
        keep_logs(session, kept_logs)


def _processes_of(session: Path) -> list[psutil.Process]:
    """Ours by their arguments, orphans of a raylet that gave up included, and all that these have started."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            is_ours = process.ppid() in (1, os.getpid()) and any(
                str(session) in part for part in process.cmdline()
            )
            if is_ours and process.pid != os.getpid():
                found |= {one.pid: one for one in (process, *process.children(recursive=True))}
    return list(found.values())


def _sweep_stale_sessions(temp_folder: Path) -> None:
    """Remove what killed drivers left: sessions whose process (last part of the name) is gone."""
    for session in temp_folder.glob("session_*_*"):
        pid = session.name.rpartition("_")[2]
        if not pid.isdigit() or Path(f"/proc/{pid}").exists():
            continue
        with suppress(FileNotFoundError):  # another driver may be sweeping too
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
