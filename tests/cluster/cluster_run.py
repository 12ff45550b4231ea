"""A run on a cluster of pretended machines, started on its head or submitted from this machine."""

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.cluster.machines import Machines
from tests.integration.smoke_run import command, only

PATIENCE_S = 400
_COMMON = {
    "pretrain.schedule.warmup_steps": "5",
    "pretrain.checkpoint.every_steps": "100",
    "pretrain.validation.every_steps": "100000",
    "resources.pretrain.placement": "strict_spread",
}


def overrides(settings: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in settings.items()]


def audit(out: Path) -> None:
    """Every token of every step exactly once."""
    words = [sys.executable, "-m", "pipeline.cli", "audit", str(out)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


class Command:
    """A command on the head, with its output and the run's folder."""

    def __init__(self, machines: Machines, name: str, words: list[str]) -> None:
        self.machines, self.out = machines, machines.shared / name
        self.log = machines.root / f"{name}.log"
        self.words = words
        self.start()

    def start(self) -> None:
        self.log.unlink(missing_ok=True)
        self.process = self.machines.popen(0, self.words, self.log)

    def kill(self) -> None:
        """kill -9, as when the machine runs out of memory."""
        for process in self.machines.processes_of(0, str(self.out)):
            process.kill()
        self.process.wait()

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def wait_for(self, reached: Callable[[], bool], limit_s: float = PATIENCE_S) -> float:
        """Return after how many seconds it was reached."""
        began_s = time.monotonic()
        while not reached():
            assert self.process.poll() is None, self.text()
            assert time.monotonic() - began_s < limit_s, self.text()
            time.sleep(0.2)
        return time.monotonic() - began_s

    def wait_for_text(self, words: str, limit_s: float = PATIENCE_S, count: int = 1) -> float:
        return self.wait_for(lambda: self.text().count(words) >= count, limit_s)

    def status(self) -> dict[str, Any]:
        """What `permcode status` says here, on a machine that is none of the cluster's but sees its storage."""
        words = [sys.executable, "-m", "pipeline.cli", "status", str(self.out), "--json"]
        found: dict[str, Any] = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
        run: dict[str, Any] = found["run"]
        return run

    def end(self, expect: int = 0) -> str:
        code = self.process.wait(PATIENCE_S * 2)
        assert code == expect, self.text()
        return self.text()


class ClusterRun(Command):
    """`permcode pretrain` on the head."""

    def __init__(self, machines: Machines, name: str, num_steps: int, **overrides: str) -> None:
        """Start; `overrides` are keys with __ for the dots."""
        given = {key.replace("__", "."): value for key, value in overrides.items()}
        self.settings = {**_COMMON, "pretrain.num_steps": str(num_steps), **given}
        super().__init__(machines, name, self.command(machines, machines.shared / name))

    def command(self, machines: Machines, out: Path) -> list[str]:
        return command("pretrain", out, machines.shared / "corpus", *overrides(self.settings))

    def newest_step(self) -> int:
        steps = [int(path.name[5:]) for path in self.out.glob("pretrain-*/checkpoints/step-*")]
        return max(steps, default=0)

    def wait_for_more_steps(self) -> None:
        before = self.newest_step()
        self.wait_for(lambda: self.newest_step() > before)

    def num_nodes(self) -> int:
        return len(list(self.out.glob("pretrain-*/nodes/*")))

    def weights(self) -> str:
        model = only(self.out, "pretrain-*/model/model.safetensors")
        return hashlib.sha256(model.read_bytes()).hexdigest()

    def audit(self) -> None:
        audit(self.out)


class SubmittedRun(ClusterRun):
    """`permcode submit --keep-alive` on this machine, which is none of the cluster's."""

    def command(self, machines: Machines, out: Path) -> list[str]:
        words = command("submit", out, machines.shared / "corpus", *overrides(self.settings))
        words += ["finetune.completion=null", "finetune.search=null"]
        return [*words, "--keep-alive", "--address", machines.dashboard]

    def start(self) -> None:
        self.log.unlink(missing_ok=True)
        environment = {**self.machines.environment}
        del environment["RAY_ADDRESS"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.words, env=environment, stdout=log, stderr=log)
