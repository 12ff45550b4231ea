"""The printed batch scripts on a real Slurm with two nodes: requeue, time limit, scancel, the array for prep."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.machines import Machines
from tests.cluster.slurm import Slurm, why_not
from tests.integration.smoke_run import copy_corpus

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

_PATIENCE_S = 500
_SETTINGS = (
    "pretrain.schedule.warmup_steps=5",
    "pretrain.validation.every_steps=100000",
    "resources.pretrain.placement=strict_spread",
    "finetune.completion=null",
    "finetune.search=null",
)
_FREQUENT_CHECKPOINTS = "pretrain.checkpoint.every_steps=50"
_NO_CHECKPOINTS = "pretrain.checkpoint.every_steps=100000"


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    if reason := why_not():
        pytest.skip(reason)
    root = Path("/tmp/pct")
    shutil.rmtree(root, ignore_errors=True)
    cluster = Slurm(Machines(root))
    try:
        cluster.up()
        copy_corpus(cluster.machines.shared / "corpus")
        yield cluster
    finally:
        cluster.down()
        shutil.rmtree(root, ignore_errors=True)


class SlurmRun:
    """A job of a printed script, and the run's folder."""

    def __init__(self, slurm: Slurm, name: str, *arguments: str, options: tuple[str, ...] = ()) -> None:
        self.slurm, self.name = slurm, name
        self.out = slurm.machines.shared / name
        script = slurm.machines.root / f"{name}.sbatch"
        words = [sys.executable, "-m", "pipeline.cli", "slurm", "--recipe", "smoke", "--out", str(self.out)]
        words += ["--nodes", "2", f"prep.source.path={slurm.machines.shared}/corpus", *_SETTINGS, *arguments]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        script.write_text(done.stdout)
        self.job = slurm.submit(script, f"--output={slurm.machines.shared}/{name}-%j.log", *options)

    def text(self) -> str:
        logs = sorted(self.slurm.machines.shared.glob(f"{self.name}-*.log"))
        return "".join(f"== {log.name}\n{log.read_text(errors='replace')}" for log in logs)

    def wait_for(self, reached: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + _PATIENCE_S
        while not reached():
            assert time.monotonic() < deadline_s, f"{self.slurm.state(self.job)}\n{self.text()}"
            time.sleep(0.5)

    def wait_for_state(self, state: str) -> None:
        self.wait_for(lambda: self.slurm.state(self.job)["JobState"] == state)

    def newest_step(self) -> int:
        return max((int(path.name[5:]) for path in self.out.glob("pretrain-*/checkpoints/step-*")), default=0)

    def wait_for_more_steps(self) -> None:
        before = self.newest_step()
        self.wait_for(lambda: self.newest_step() > before)

    def start_again_now(self) -> None:
        """A requeued job waits two minutes: nodes refuse it while they remember its end."""
        self.wait_for_state("PENDING")
        time.sleep(10)
        self.slurm.control("update", f"JobId={self.job}", "StartTime=now")

    def audit(self) -> None:
        words = [sys.executable, "-m", "pipeline.cli", "audit", str(self.out)]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_run_on_two_nodes_is_requeued_at_its_time_limit_and_finishes(slurm: Slurm) -> None:
    # The signal comes 300 s before the end of the limit, in the script; here 60 s before.
    settings = ("pretrain.num_steps=4000", _FREQUENT_CHECKPOINTS)
    one = SlurmRun(slurm, "limit", *settings, options=("--time=100", "--signal=B:USR1@60"))
    one.wait_for_more_steps()
    hours, minutes, _ = slurm.state(one.job)["RunTime"].split(":")
    slurm.control("update", f"JobId={one.job}", f"TimeLimit={60 * int(hours) + int(minutes) + 2}")
    one.wait_for(lambda: "goes back into the queue" in one.text())
    assert len(list(one.out.glob("pretrain-*/nodes/*"))) == 2
    stopped_at = one.newest_step()
    assert stopped_at > 0
    assert "interrupted: the same command continues" in one.text()
    one.wait_for_state("PENDING")
    slurm.control("update", f"JobId={one.job}", "TimeLimit=100")
    one.start_again_now()
    one.wait_for_state("COMPLETED")
    assert slurm.state(one.job)["Restarts"] == "1"
    assert f"resuming from checkpoint step-{stopped_at:08d}" in one.text()
    assert not list(slurm.machines.shared.glob("limit.slurm-*"))
    one.audit()


def test_a_run_that_is_requeued_by_hand_writes_a_checkpoint_and_resumes(slurm: Slurm) -> None:
    one = SlurmRun(slurm, "requeue", "pretrain.num_steps=3000", _NO_CHECKPOINTS)
    one.wait_for(lambda: "loss" in one.text())
    time.sleep(5)
    slurm.control("requeue", str(one.job))
    one.start_again_now()
    one.wait_for_state("COMPLETED")
    assert "resuming from checkpoint" in one.text()
    one.audit()


def test_scancel_leaves_a_checkpoint_and_the_same_file_resumes(slurm: Slurm) -> None:
    settings = ("pretrain.num_steps=3000", _NO_CHECKPOINTS)
    one = SlurmRun(slurm, "cancelled", *settings)
    one.wait_for(lambda: "loss" in one.text())
    time.sleep(5)
    slurm.cancel(one.job)
    one.wait_for_state("CANCELLED")
    one.wait_for(lambda: one.newest_step() > 0)
    again = SlurmRun(slurm, "cancelled", *settings)
    again.wait_for_state("COMPLETED")
    assert "resuming from checkpoint" in again.text()
    again.audit()


def test_prep_s_array_works_on_all_nodes(slurm: Slurm) -> None:
    one = SlurmRun(slurm, "array", "--prep")
    tasks = (f"{one.job}_0", f"{one.job}_1")
    one.wait_for(lambda: all("JobState=COMPLETED" in slurm.control("show", "job", task) for task in tasks))
    assert list(one.out.glob("prep-*/manifest.json")) or list(one.out.glob("prep-*/*.json"))
    assert not list(slurm.machines.shared.glob("array.slurm-*"))
