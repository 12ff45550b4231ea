"""Ray sessions, of this machine's own Ray or of a cluster."""

import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from pydantic import Field

import cluster
from cluster.config import Config
from cluster.errors import RetryableError, UserError, first_line
from cluster.local_ray import ENVIRONMENT, keep_logs, session_folder, start_local_ray, watch_session

_MIN_CPUS = 2
"""Two training workers must fit on a one-core machine, too."""
_PROBE_TIMEOUT_S = 10


class RayConfig(Config):
    """The size of the local Ray; a cluster named by RAY_ADDRESS is used as it is."""

    num_cpus: int | None = Field(default=None, ge=1)
    """Logical CPUs; None means the CPUs that this process may use, but at least 2."""


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
