"""A run on a cluster of pretended machines, started on its head or submitted from this machine."""

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
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


class ClusterRun:
    """`permcode pretrain` on the head."""

    def __init__(self, machines: Machines, name: str, num_steps: int, **overrides: str) -> None:
        """Start; `overrides` are keys with __ for the dots."""
        self.machines, self.out = machines, machines.shared / name
        self.log = machines.root / f"{name}.log"
        given = {key.replace("__", "."): value for key, value in overrides.items()}
        self.settings = {**_COMMON, "pretrain.num_steps": str(num_steps), **given}
        self.start()

    def start(self) -> None:
        self.log.unlink(missing_ok=True)
        words = command("pretrain", self.out, self.machines.shared / "corpus", *overrides(self.settings))
        self.process = self.machines.popen(0, words, self.log)

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

    def newest_step(self) -> int:
        steps = [int(path.name[5:]) for path in self.out.glob("pretrain-*/checkpoints/step-*")]
        return max(steps, default=0)

    def wait_for_more_steps(self) -> None:
        before = self.newest_step()
        self.wait_for(lambda: self.newest_step() > before)

    def status(self) -> dict[str, Any]:
        """What `permcode status` says here, on a machine that is none of the cluster's but sees its storage."""
        words = [sys.executable, "-m", "pipeline.cli", "status", str(self.out), "--json"]
        found: dict[str, Any] = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
        run: dict[str, Any] = found["run"]
        return run

    def num_nodes(self) -> int:
        return len(list(self.out.glob("pretrain-*/nodes/*")))

    def end(self, expect: int = 0) -> str:
        code = self.process.wait(PATIENCE_S * 2)
        assert code == expect, self.text()
        return self.text()

    def weights(self) -> str:
        model = only(self.out, "pretrain-*/model/model.safetensors")
        return hashlib.sha256(model.read_bytes()).hexdigest()

    def audit(self) -> None:
        """Every token of every step exactly once."""
        words = [sys.executable, "-m", "pipeline.cli", "audit", str(self.out)]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


class SubmittedRun(ClusterRun):
    """`permcode submit --keep-alive` on this machine, which is none of the cluster's."""

    def start(self) -> None:
        self.log.unlink(missing_ok=True)
        words = command("submit", self.out, self.machines.shared / "corpus", *overrides(self.settings))
        words += ["finetune.completion=null", "finetune.search=null"]
        words += ["--keep-alive", "--address", self.machines.dashboard]
        environment = {**self.machines.environment}
        del environment["RAY_ADDRESS"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
