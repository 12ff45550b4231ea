"""A fork server: a process that has imported everything and forks training processes, in a tenth of a second each.

Importing torch and DeepSpeed takes seconds of CPU time, and a test that kills a run two hundred times starts some
thousand processes. The forked ones are ordinary processes: signals reach them, and no training was started before
the fork. `python -m tests.distributed.fork_server` reads one JSON request per line and answers each with one line.
"""

import atexit
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

_REPOSITORY = Path(__file__).parents[2]
_POLL_S = 0.005
_PORTS = (20_000, 32_000)
"""Below those that Linux gives to connections, above Ray's."""


class Worker:
    """A process that the fork server started, with the methods of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._exit_code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while it runs."""
        if self._exit_code is None:
            self._exit_code = _fork_server().ask({"wait": self.pid, "timeout_s": 0.0})
        return self._exit_code

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raises subprocess.TimeoutExpired."""
        if self._exit_code is None:
            self._exit_code = _fork_server().ask({"wait": self.pid, "timeout_s": timeout or 1e9})
        if self._exit_code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return self._exit_code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def start_ranks(
    main: str, settings: Any, world_size: int, logs: str, environment: Mapping[str, str] | None = None
) -> list[Worker]:
    """Run `main(settings)` of the module `tests.distributed.MAIN` as every rank of a process group.

    `settings` are JSON values. Rank R prints to `logs` with "{}" replaced by R.
    """
    port = _free_port()
    workers = []
    for rank in range(world_size):
        variables = {
            **(environment or {}), "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        }  # fmt: skip
        request = {"main": main, "settings": settings, "environment": variables, "log": logs.format(rank)}
        workers.append(Worker(_fork_server().ask(request)))
    return workers


def _free_port() -> int:
    """Return a port that the system does not give to another process before it is used."""
    while True:
        port = random.SystemRandom().randrange(*_PORTS)  # not the seeded one, which all test processes share
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class _ForkServer:
    """The client's end of the pipe."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.distributed.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_REPOSITORY,
            env={**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
            text=True,
        )
        atexit.register(self._close)

    def ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the fork server has died"
        return json.loads(answer)

    def _close(self) -> None:
        self._process.kill()
        self._process.communicate()


@cache
def _fork_server() -> _ForkServer:
    return _ForkServer()


def _serve() -> None:
    """Answer requests until the pipe is closed."""
    import deepspeed.runtime.zero.muon.original_muon  # noqa: F401  (brings torch's compiler in)
    import torch

    import pretrain.worker  # noqa: F401
    import tests.distributed.train_main  # noqa: F401
    from pretrain.model.fused.operators import load_operators

    torch.set_num_threads(1)
    load_operators()
    # Nothing but answers goes to the pipe.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        answer = _wait(request) if "wait" in request else _fork(request)
        print(json.dumps(answer), file=answers, flush=True)


def _fork(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        _run_forked(request)
    return pid


def _run_forked(request: dict[str, Any]) -> None:
    """Run in a forked process; never returns."""
    code = 1
    try:
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.update(request["environment"])
        import_module(f"tests.distributed.{request['main']}").main(request["settings"])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(request: dict[str, Any]) -> int | None:
    deadline_s = time.monotonic() + request["timeout_s"]
    while True:
        pid, status = os.waitpid(request["wait"], os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline_s:
            return None
        time.sleep(_POLL_S)


if __name__ == "__main__":
    _serve()
