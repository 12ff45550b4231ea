"""Finetuning on a cluster of three machines: groups side by side, nodes that lose power, a killed command."""

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster_run import Command
from tests.cluster.machines import Machines, why_not
from tests.integration.smoke_run import run
from tests.integration.translation_run import finetune_words, write_base, write_pairs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

_SETTINGS = ("training.steps=200", "training.evaluate_every_steps=50")


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    if reason := why_not():
        pytest.skip(reason)
    root = Path("/tmp/pcf")
    shutil.rmtree(root, ignore_errors=True)
    machines = Machines(root, prefix="pcf", subnet="10.81.0")
    try:
        machines.up(workers=2, cpus=1)
        (machines.shared / "data").mkdir()
        write_pairs(machines.shared / "data")
        write_base(machines.shared / "base")
        yield machines
    finally:
        machines.down()
        shutil.rmtree(root, ignore_errors=True)


def words(machines: Machines, name: str) -> list[str]:
    shared = machines.shared
    arguments = finetune_words(shared / "base" / "model", shared / "data", shared / name, *_SETTINGS)
    return [sys.executable, "-m", "pipeline.cli", *arguments]


@pytest.fixture(scope="module")
def expected(machines: Machines) -> dict[str, bytes]:
    """What a run here leaves that does one job after the other."""
    run(words(machines, "alone"))
    return results(machines.shared / "alone")


def results(out: Path) -> dict[str, bytes]:
    """Results, predictions and weights by their names."""
    (stage,) = out.glob("translation-*")
    names = ("result.json", "predictions.jsonl", "*.safetensors")
    files = [path for name in names for path in stage.rglob(name)]
    assert len(files) > 8
    return {str(path.relative_to(stage)): path.read_bytes() for path in files}


class Finetuning(Command):
    """`permcode finetune` on the head."""

    def __init__(self, machines: Machines, name: str) -> None:
        super().__init__(machines, name, words(machines, name))

    def events(self) -> list[dict[str, str]]:
        """What the workers have logged."""
        files = self.out.glob("logs/events/translation-*/**/rank-*.jsonl")
        lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        return sorted(lines, key=lambda line: line["time"])

    def host_of(self, system: str) -> int:
        """The number of the machine that did the newest step of a system."""
        hosts = [line["host"] for line in self.events() if line["system"].startswith(system)]
        return int(hosts[-1].removeprefix(self.machines.prefix))

    def wait_for_checkpoint_of(self, system: str) -> None:
        self.wait_for(lambda: bool(list(self.out.glob(f"translation-*/{system}/**/step-*/COMMIT.json"))))

    def num_starts(self, system: str) -> int:
        return len(
            {(line["pid"], line["host"]) for line in self.events() if line["system"].startswith(system)}
        )


def test_two_nodes_do_two_systems_side_by_side_with_the_results_of_one(
    machines: Machines, expected: dict[str, bytes]
) -> None:
    one = Finetuning(machines, "both")
    text = one.end()
    assert "there is room for 2 groups side by side" in text
    spans = {}
    for line in one.events():
        first, _ = spans.get(line["host"], (line["time"], ""))
        spans[line["host"]] = first, line["time"]
    assert set(spans) == {"pcf1", "pcf2"}
    assert max(first for first, _ in spans.values()) < min(last for _, last in spans.values())
    assert results(one.out) == expected


def test_a_node_that_loses_power_costs_only_the_group_on_it(
    machines: Machines, expected: dict[str, bytes]
) -> None:
    one = Finetuning(machines, "power")
    one.wait_for_checkpoint_of("rnn")
    one.wait_for(lambda: one.num_starts("pretrained") == 1)
    lost = one.host_of("rnn")
    machines.kill(lost)
    one.wait_for_text(f"node {machines.name(lost)} ({machines.address_of(lost)}) is lost")
    time.sleep(10)
    machines.start(lost)
    text = one.end()
    assert "are started again" in text
    assert one.num_starts("rnn") == 2
    assert one.num_starts("pretrained") == 1
    assert results(one.out) == expected


def test_a_node_that_is_gone_for_good_leaves_its_job_to_the_other_one(
    machines: Machines, expected: dict[str, bytes]
) -> None:
    one = Finetuning(machines, "gone")
    one.wait_for_checkpoint_of("rnn")
    lost = one.host_of("rnn")
    machines.kill(lost)
    one.end()
    assert one.host_of("rnn") != lost
    assert results(one.out) == expected
    machines.start(lost)


def test_a_worker_that_gets_sigterm_makes_a_checkpoint_and_its_job_goes_on(
    machines: Machines, expected: dict[str, bytes]
) -> None:
    one = Finetuning(machines, "preempted")
    one.wait_for_checkpoint_of("rnn")
    for process in machines.processes_of(one.host_of("rnn"), "RayTrainWorker"):
        process.terminate()
    text = one.end()
    assert "the workers ended with a checkpoint and are started again" in text
    assert "workers failed" not in text
    assert results(one.out) == expected


def test_a_killed_command_is_started_again_and_ends_the_same(
    machines: Machines, expected: dict[str, bytes]
) -> None:
    one = Finetuning(machines, "killed")
    one.wait_for_checkpoint_of("rnn")
    one.kill()
    one.start()
    one.end()
    assert results(one.out) == expected
