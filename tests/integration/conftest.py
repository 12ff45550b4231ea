"""A Ray head node of the tests' own, as a cluster's administrator would start it."""

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

_START_TIMEOUT_S = 300


@dataclass(frozen=True)
class RayHead:
    """Where the head listens and the token it asks for."""

    address: str
    """Of the dashboard, for the Jobs API."""
    token: str
    metrics: str = ""
    """HOST:PORT where Prometheus finds the head's metrics."""


@pytest.fixture(scope="module")
def ray_head() -> Iterator[RayHead]:
    """A head node with two CPUs that demands a token; gone when the module's tests are done."""
    token = "head-of-the-tests-" + "1" * 32
    port, client_port, metrics_port = free_ports(3)
    beside_python = Path(sys.executable).parent
    address = f"http://127.0.0.1:{port}"
    # Short: Ray puts sockets below it, whose paths may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="pch-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        command = [
            str(beside_python / "ray"), "start", "--head", "--block", "--num-cpus=2",
            "--port=0", f"--ray-client-server-port={client_port}", "--dashboard-agent-listen-port=0",
            "--include-dashboard=true", f"--dashboard-port={port}", f"--temp-dir={folder}",
            "--object-store-memory=100000000", "--disable-usage-stats", f"--metrics-export-port={metrics_port}",
        ]  # fmt: skip
        # As in an activated environment: jobs find their `python` on the head's PATH.
        path = os.pathsep.join([str(beside_python), os.environ.get("PATH", os.defpath)])
        environment = {**os.environ, "PATH": path, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
        environment["RAY_metrics_report_interval_ms"] = "1000"  # 10 s are longer than a test's stage
        log = Path(folder) / "head.log"
        with log.open("wb") as output:
            head = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            _wait_for(address, head, log)
            yield RayHead(address, token, f"127.0.0.1:{metrics_port}")
        finally:
            _stop(head)


def free_ports(count: int) -> list[int]:
    """Different ones: all are taken before the first is given back."""
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(server.getsockname()[1]) for server in servers]


def _wait_for(address: str, head: "subprocess.Popen[bytes]", log: Path) -> None:
    """Until the dashboard answers; that it asks for the token is answer enough."""
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline_s and head.poll() is None:
        try:
            urllib.request.urlopen(f"{address}/api/version", timeout=5).close()
            return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 401:
                return
        except OSError:
            pass
        time.sleep(0.5)
    pytest.fail(f"the head node did not start: {log.read_text(errors='replace')[-2000:]}")


def _stop(head: "subprocess.Popen[bytes]") -> None:
    """Kill it with all its processes: asked to end, it takes up to 20 s."""
    children = psutil.Process(head.pid).children(recursive=True) if head.poll() is None else []
    head.kill()
    head.wait()
    for process in children:
        with suppress(psutil.NoSuchProcess):
            process.kill()
