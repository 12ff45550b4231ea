"""A submitted run whose head, supervisor, network, storage or room is lost for a while."""

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster_run import ClusterRun, SubmittedRun
from tests.cluster.machines import Machines, why_not
from tests.integration.smoke_run import copy_corpus

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    if reason := why_not():
        pytest.skip(reason)
    root = Path("/tmp/pch")
    shutil.rmtree(root, ignore_errors=True)
    machines = Machines(root, prefix="pch", subnet="10.79.0", hosts="none")
    try:
        machines.shared.mkdir(parents=True)
        _mount_storage(machines)
        machines.up(workers=2, cpus=1)
        copy_corpus(machines.shared / "corpus")
        yield machines
    finally:
        machines.down()
        subprocess.run(["umount", "--lazy", machines.shared], capture_output=True)
        shutil.rmtree(root, ignore_errors=True)


def _mount_storage(machines: Machines) -> None:
    """A file system of its own, which can be frozen."""
    image = machines.root / "storage"
    with image.open("wb") as file:
        file.truncate(2 << 30)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, machines.shared], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no loop device can be mounted: {mounted.stderr.strip()}")


def test_a_head_that_is_started_again_and_a_killed_supervisor(machines: Machines) -> None:
    one = SubmittedRun(machines, "head", 3000)
    one.wait_for_more_steps()
    assert one.num_nodes() == 2
    machines.kill(0)
    time.sleep(5)
    machines.start(0)
    one.wait_for_text("trying again in")
    one.wait_for_more_steps()
    one.process.kill()
    one.process.wait()
    one.start()
    one.wait_for_text("already does this: following it")
    text = one.end()
    assert "succeeded" in text.splitlines()[-1]
    assert "resuming from checkpoint" in text
    one.audit()


def test_a_cable_that_is_cut_for_20_seconds(machines: Machines) -> None:
    one = ClusterRun(machines, "cable", 2500)
    one.wait_for_more_steps()
    machines.cut(2)
    time.sleep(20)
    machines.heal(2)
    one.wait_for_more_steps()
    one.end()
    one.audit()


def test_a_cable_that_is_cut_for_good(machines: Machines) -> None:
    settings = {"pretrain__num_workers": "{min: 1, max: 2}", "pretrain__deterministic": "true"}
    one = ClusterRun(machines, "cut", 2500, **settings, pretrain__micro_batch_lanes="2")
    one.wait_for_more_steps()
    machines.cut(2)
    one.wait_for_text("goes on with 1 of 2 workers")
    one.end()
    one.audit()
    machines.kill(2)
    machines.start(2)


def test_a_cable_that_is_cut_for_good_and_nobody_to_take_over(machines: Machines) -> None:
    one = ClusterRun(machines, "cut2", 2500, resources__pretrain__wait_s="40")
    one.wait_for_more_steps()
    machines.cut(2)
    text = one.end(expect=75)
    assert "is lost; its work waits for room or for its return" in text
    assert "failed for now (missing resources)" in text.splitlines()[-1]
    machines.heal(2)
    one.start()
    one.end()
    one.audit()


def test_storage_that_is_frozen_for_60_seconds(machines: Machines) -> None:
    one = ClusterRun(machines, "frozen", 2500)
    one.wait_for_more_steps()
    # Another process thaws: whoever touches the storage waits.
    thaw = threading.Timer(60, lambda: subprocess.run(["fsfreeze", "--unfreeze", machines.shared]))
    thaw.start()
    subprocess.run(["fsfreeze", "--freeze", machines.shared], check=True)
    thaw.join()
    one.wait_for_more_steps()
    one.end()
    one.audit()


def test_a_node_that_ray_takes_away_is_left_with_a_checkpoint(machines: Machines) -> None:
    one = ClusterRun(
        machines,
        "drained",
        2500,
        pretrain__checkpoint__every_steps="100000",
        pretrain__num_workers="{min: 1, max: 2}",
    )
    one.wait_for_text("loss")
    time.sleep(5)
    drain = "--reason=DRAIN_NODE_REASON_PREEMPTION --reason-message=test --deadline-remaining-seconds=600"
    log = machines.root / "drain.log"
    address = f"--address={machines.address_of(0)}:6379"
    assert machines.popen(2, ["ray", "drain-node", address, *drain.split()], log).wait(120) == 0, (
        log.read_text()
    )
    one.wait_for_text("is about to be taken away")
    one.wait_for_text("the workers ended with a checkpoint and are started again")
    assert one.newest_step() > 0
    machines.kill(2)
    one.wait_for_text("goes on with 1 of 2 workers")
    machines.start(2)
    one.end()
    one.audit()


def test_a_node_that_joins_late_and_cpus_that_another_job_holds(machines: Machines) -> None:
    machines.kill(2)
    holder = machines.popen(
        0,
        ["python", "-c", "import ray, time; ray.init(); g = ray.util.placement_group([{'CPU': 1}]); "
         "ray.get(g.ready()); print('held', flush=True); time.sleep(40)"],
        machines.root / "holder.log",
    )  # fmt: skip
    one = ClusterRun(machines, "late", 300)
    one.wait_for_text("; waiting")
    time.sleep(30)
    machines.start(2)
    one.end()
    assert one.num_nodes() == 2
    assert holder.wait(60) == 0
    one.audit()
