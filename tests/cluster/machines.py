"""A Ray cluster of pretended machines: network, mount, process and host-name namespaces on one Linux machine, as root.

Machine 0 is the head. What a machine starts dies with its first process, as on one that loses power.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
_START_TIMEOUT_S = 240
_OBJECT_STORE_BYTES = 100_000_000


def why_not() -> str:
    """Why no machines can be pretended here; empty if they can."""
    if os.geteuid() != 0:
        return "needs root for network namespaces"
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return "needs ip (iproute2) and unshare (util-linux)"
    made = subprocess.run(["ip", "netns", "add", "pcprobe"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", "pcprobe"], capture_output=True)
    return f"network namespaces cannot be made: {made.stderr.strip()}" if made.returncode else ""


def _sh(*words: str, check: bool = True) -> None:
    subprocess.run(words, check=check, capture_output=True, text=True)


@dataclass
class Machines:
    """The machines below `root`, which must be short and below /tmp; `root`/shared is seen by all."""

    root: Path
    prefix: str = "pct"
    subnet: str = "10.78.0"
    head_cpus: int = 0
    token: str = "machines-of-the-tests-" + "1" * 32
    hosts: Literal["resolve", "debian", "none"] = "resolve"
    """/etc/hosts: all names with their addresses, the own name as 127.0.1.1, or no names."""
    processes: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def shared(self) -> Path:
        return self.root / "shared"

    @property
    def dashboard(self) -> str:
        return f"http://{self.address_of(0)}:8265"

    @property
    def environment(self) -> dict[str, str]:
        """For a command on machine 0."""
        own = {
            "PYTHONPATH": str(ROOT),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            "RAY_ADDRESS": f"{self.address_of(0)}:6379",
            "PYTHONDONTWRITEBYTECODE": "1",
            "RAY_raylet_start_wait_time_s": "180",
            "RAY_worker_niceness": "0",
            "TMPDIR": "/tmp",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        return {**os.environ, **own}

    def address_of(self, number: int) -> str:
        return f"{self.subnet}.{number + 1}"

    def name(self, number: int) -> str:
        return f"{self.prefix}{number}"

    def up(self, workers: int = 2, cpus: int = 1, *extra: str) -> None:
        """Start the head and the workers; wait until the dashboard answers."""
        self.make_network()
        self.start(0)
        self._wait_for_dashboard()
        for number in range(1, workers + 1):
            self.start(number, cpus, *extra)

    def make_network(self) -> None:
        """Make the shared folder and the bridge, on which this machine is SUBNET.254."""
        self.shared.mkdir(parents=True, exist_ok=True)
        bridge = f"{self.prefix}br"
        _sh("ip", "link", "add", bridge, "type", "bridge", check=False)
        _sh("ip", "addr", "add", f"{self.subnet}.254/24", "dev", bridge, check=False)
        _sh("ip", "link", "set", bridge, "up")

    def start(self, number: int, cpus: int = 1, *extra: str, hidden: str = "") -> None:
        """Switch a machine on, with Ray. One that comes back has an empty /tmp; the head has `head_cpus`."""
        cpus = self.head_cpus if number == 0 else cpus
        ray = [
            f"{Path(sys.executable).parent}/ray", "start", "--block", "--disable-usage-stats",
            f"--node-ip-address={self.address_of(number)}", f"--num-cpus={cpus}",
            f"--object-store-memory={_OBJECT_STORE_BYTES}",
        ]  # fmt: skip
        if number == 0:
            ray += ["--head", "--port=6379", "--include-dashboard=true", "--dashboard-host=0.0.0.0"]
        else:
            ray += [f"--address={self.address_of(0)}:6379"]
        self.switch_on(number, [*ray, *extra], hidden)

    def switch_on(self, number: int, program: list[str], hidden: str = "") -> None:
        """Start a machine whose first process runs `program`, and again when it fails."""
        self._plug_in(number)
        tmp = self.root / f"m{number}-{time.time_ns()}"
        tmp.mkdir(parents=True)
        visible = [str(self.shared), *([str(ROOT)] if ROOT.is_relative_to("/tmp") else [])]
        environment = {
            **self.environment,
            "MACHINE_NAME": self.name(number),
            "MACHINE_TMP": str(tmp),
            "MACHINE_VISIBLE": ":".join(visible),
            "MACHINE_HIDDEN": hidden,
            "MACHINE_HOSTS": self._hosts_of(number),
        }
        del environment["RAY_ADDRESS"]
        with (self.root / f"ray-start-{number}.log").open("ab") as log:
            self.processes[number] = subprocess.Popen(
                ["ip", "netns", "exec", self.name(number), "unshare", "--mount", "--pid", "--fork", "--uts",
                 "--kill-child=KILL", "--mount-proc", str(HERE / "machine_init.sh"), *program],
                env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def popen(self, number: int, command: list[str], output: Path) -> "subprocess.Popen[bytes]":
        """Start a command on a machine, in the repository's root."""
        with output.open("ab") as log:
            return subprocess.Popen(
                ["nsenter", f"--target={self._first_process(number)}", "--mount", "--pid", "--net", "--uts",
                 f"--wd={ROOT}", *command],
                env=self.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def kill(self, number: int) -> None:
        """Cut a machine's power."""
        with suppress(OSError, psutil.Error, IndexError):
            os.kill(self._first_process(number), signal.SIGKILL)
        _sh("ip", "link", "del", f"{self.name(number)}h", check=False)
        with suppress(subprocess.TimeoutExpired):
            self.processes[number].wait(timeout=30)

    def cut(self, number: int) -> None:
        """Pull a machine's cable."""
        _sh("ip", "link", "set", f"{self.name(number)}h", "down")

    def heal(self, number: int) -> None:
        _sh("ip", "link", "set", f"{self.name(number)}h", "up")

    def processes_of(self, number: int, pattern: str) -> list[psutil.Process]:
        """The machine's processes whose command line has `pattern`."""
        found = []
        namespace = os.readlink(f"/proc/{self._first_process(number)}/ns/pid")
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if os.readlink(f"/proc/{process.pid}/ns/pid") == namespace and pattern in " ".join(
                    process.cmdline()
                ):
                    found.append(process)
        return found

    def down(self) -> None:
        for number, process in self.processes.items():
            self.kill(number)
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            _sh("ip", "netns", "del", self.name(number), check=False)
        _sh("ip", "link", "del", f"{self.prefix}br", check=False)

    def _first_process(self, number: int) -> int:
        """The machine's process 1, as this machine numbers it."""
        return psutil.Process(self.processes[number].pid).children()[0].pid

    def _plug_in(self, number: int) -> None:
        name, bridge = self.name(number), f"{self.prefix}br"
        _sh("ip", "netns", "del", name, check=False)
        _sh("ip", "link", "del", f"{name}h", check=False)
        _sh("ip", "netns", "add", name)
        _sh("ip", "link", "add", f"{name}h", "type", "veth", "peer", "name", "eth0", "netns", name)
        _sh("ip", "link", "set", f"{name}h", "master", bridge, "up")
        _sh("ip", "-n", name, "addr", "add", f"{self.address_of(number)}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _sh("ip", "-n", name, "link", "set", device, "up")

    def _hosts_of(self, number: int) -> str:
        if self.hosts == "none":
            return ""
        if self.hosts == "debian":
            return f"127.0.1.1 {self.name(number)}"
        return "\\n".join(f"{self.address_of(other)} {self.name(other)}" for other in range(8))

    def _wait_for_dashboard(self) -> None:
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline_s and self.processes[0].poll() is None:
            try:
                urllib.request.urlopen(f"{self.dashboard}/api/version", timeout=3).close()
                return
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.5)
        log = (self.root / "ray-start-0.log").read_text(errors="replace")
        raise AssertionError(f"the head did not start: {log[-2000:]}")
