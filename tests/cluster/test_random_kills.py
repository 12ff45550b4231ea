"""A submitted run, from sources to a finetuned system, of which something is killed at random until it ends."""

import random
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cluster.storage import sha256_file
from tests.cluster.cluster_run import Command, audit, overrides
from tests.cluster.machines import Machines, why_not
from tests.cluster.test_prep import PACKAGES, copy_sources
from tests.integration.smoke_run import command, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(5400)]

_SEED = 21
_PATIENCE_S = 4800
_SETTINGS = {
    "prep.split.by": "file",
    "pretrain.num_steps": "3000",
    "pretrain.num_workers": "{min: 1, max: 2}",
    "pretrain.deterministic": "true",
    "pretrain.micro_batch_lanes": "2",
    "pretrain.schedule.warmup_steps": "5",
    "pretrain.checkpoint.every_steps": "100",
    "pretrain.validation.every_steps": "100000",
    "finetune.search": "null",
    "finetune.completion.training.steps": "400",
    "finetune.completion.training.evaluate_every_steps": "50",
}


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    if reason := why_not():
        pytest.skip(reason)
    root = Path("/tmp/pck")
    shutil.rmtree(root, ignore_errors=True)
    machines = Machines(root, prefix="pck", subnet="10.83.0")
    try:
        machines.up(workers=2, cpus=1)
        for package in PACKAGES:
            copy_sources(package, machines.shared / "corpus" / package)
        yield machines
    finally:
        machines.down()
        shutil.rmtree(root, ignore_errors=True)


def words(verb: str, machines: Machines, name: str) -> list[str]:
    return command(verb, machines.shared / name, machines.shared / "corpus", *overrides(_SETTINGS))


class Submitted(Command):
    """`permcode submit --keep-alive` on this machine, started again when it is killed."""

    def start(self) -> None:
        environment = {**self.machines.environment}
        del environment["RAY_ADDRESS"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.words, env=environment, stdout=log, stderr=log)


class Killer(threading.Thread):
    """Kills something every 15 to 40 s, until `ended` is set."""

    def __init__(self, machines: Machines, submitted: Submitted) -> None:
        super().__init__(name="killer", daemon=True)
        self.machines, self.submitted, self.ended = machines, submitted, threading.Event()
        self.kills: Counter[str] = Counter()
        self._random = random.Random(_SEED)

    def run(self) -> None:
        kinds = {"worker": self._worker, "node": self._node, "command": self._command, "head": self._head}
        kinds["supervisor"] = self._supervisor
        while not self.ended.wait(self._random.uniform(15, 40)):
            # Each kind as often as the others, in any order.
            kind = self._random.choice(
                [kind for kind in kinds if self.kills[kind] == min(self.kills[one] for one in kinds)]
            )
            kinds[kind]()
            self.kills[kind] += 1

    def _worker(self) -> None:
        number = self._random.choice((1, 2))
        for kind in ("ray::RayTrainWorker", "ray::_run_task"):
            self._kill(self.machines.processes_of(number, kind))

    def _node(self) -> None:
        number = self._random.choice((1, 2))
        self.machines.kill(number)
        time.sleep(self._random.uniform(5, 15))
        self.machines.start(number)

    def _command(self) -> None:
        self._kill(self.machines.processes_of(0, "pipeline.cli"))

    def _head(self) -> None:
        self.machines.kill(0)
        time.sleep(self._random.uniform(2, 9))
        self.machines.start(0)

    def _supervisor(self) -> None:
        self.submitted.process.kill()
        self.submitted.process.wait()
        self.submitted.start()

    @staticmethod
    def _kill(processes: list[psutil.Process]) -> None:
        for process in processes:
            process.kill()


def results(out: Path) -> dict[str, str]:
    """The hashes of the shards, of the model, and of the systems' results, predictions and weights."""
    names = ("prep-*/**/*.tar", "pretrain-*/model/model.safetensors", "completion-*/**/result.json",
             "completion-*/**/predictions.jsonl", "completion-*/**/*.safetensors")  # fmt: skip
    files = [path for name in names for path in out.glob(name)]
    assert len(files) > 10
    return {str(path.relative_to(out)): sha256_file(path) for path in files}


def test_a_run_ends_as_an_undisturbed_one_though_all_of_it_is_killed_again_and_again(
    machines: Machines,
) -> None:
    run(words("run", machines, "alone"))
    one = Submitted(
        machines,
        "killed",
        [*words("submit", machines, "killed"), "--keep-alive", "--address", machines.dashboard],
    )
    killer = Killer(machines, one)
    killer.start()
    deadline_s = time.monotonic() + _PATIENCE_S
    while not (one.out / "report.html").exists():
        assert time.monotonic() < deadline_s, one.text()
        time.sleep(1)
    killer.ended.set()
    killer.join()
    print(f"kills: {dict(killer.kills)}")
    assert one.process.wait(600) == 0, one.text()
    assert min(killer.kills.values()) >= 1
    audit(one.out)
    assert results(one.out) == results(machines.shared / "alone")
