"""Preparing a corpus on a cluster of three machines: nodes that lose power, a killed command."""

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.storage import sha256_file
from tests.cluster.cluster_run import Command
from tests.cluster.machines import Machines, why_not
from tests.integration.smoke_run import command, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PACKAGES = ("sympy", "mlflow", "networkx")
"""Installed with the dependencies; 50 MB of Python keep two workers busy for half a minute."""


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    if reason := why_not():
        pytest.skip(reason)
    root = Path("/tmp/pcp")
    shutil.rmtree(root, ignore_errors=True)
    machines = Machines(root, prefix="pcp", subnet="10.82.0")
    try:
        machines.up(workers=2, cpus=1)
        for package in PACKAGES:
            copy_sources(package, machines.shared / "corpus" / package)
        yield machines
    finally:
        machines.down()
        shutil.rmtree(root, ignore_errors=True)


def copy_sources(package: str, target: Path) -> None:
    (source,) = [
        Path(place) / package for place in sys.path if (Path(place) / package / "__init__.py").exists()
    ]
    for path in source.rglob("*.py"):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


class Prep(Command):
    """`permcode prep` on the head."""

    def __init__(self, machines: Machines, name: str) -> None:
        super().__init__(machines, name, words(machines, name))

    def works_on(self, number: int) -> bool:
        return bool(self.machines.processes_of(number, "ray::_run_task"))


def words(machines: Machines, name: str) -> list[str]:
    return command("prep", machines.shared / name, machines.shared / "corpus")


@pytest.fixture(scope="module")
def expected(machines: Machines) -> dict[str, str]:
    """What prep leaves on this machine alone."""
    run(words(machines, "alone"))
    return outputs(machines.shared / "alone")


def outputs(out: Path) -> dict[str, str]:
    """The hashes of the shards, their indexes, the manifest, the ledger and the tokenizer."""
    (stage,) = out.glob("prep-*")
    files = [path for path in stage.rglob("*") if path.is_file() and path.name != "STAGE.json"]
    visible = [
        path for path in files if not any(part.startswith(".") for part in path.relative_to(stage).parts)
    ]
    assert any(path.suffix == ".tar" for path in visible)
    return {str(path.relative_to(stage)): sha256_file(path) for path in visible}


def test_a_node_that_loses_power_and_comes_back(machines: Machines, expected: dict[str, str]) -> None:
    one = Prep(machines, "power")
    one.wait_for(lambda: one.works_on(1) and one.works_on(2))
    machines.kill(2)
    took_s = one.wait_for_text("node pcp2 (10.82.0.3) is lost")
    assert took_s < 25
    machines.start(2)
    text = one.end()
    assert "taken back from a lost node" in text
    assert outputs(one.out) == expected


def test_a_node_that_is_gone_for_good(machines: Machines, expected: dict[str, str]) -> None:
    one = Prep(machines, "gone")
    one.wait_for(lambda: one.works_on(1) and one.works_on(2))
    machines.kill(1)
    # Ray alone took more than 390 s to learn that the task is lost, where this test takes 32 s.
    one.wait_for_text("taken back from a lost node", limit_s=60)
    one.end()
    machines.start(1)
    assert outputs(one.out) == expected


def test_a_killed_command_is_started_again_and_keeps_what_is_done(
    machines: Machines, expected: dict[str, str]
) -> None:
    one = Prep(machines, "killed")
    one.wait_for(lambda: one.works_on(1) and one.works_on(2))
    time.sleep(5)
    one.kill()
    one.start()
    text = one.end()
    assert "parts are done" in text
    assert outputs(one.out) == expected
