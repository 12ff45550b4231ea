"""`--keep-alive`: a killed run is tried again; neither a stop nor the supervisor's death leaves it behind."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.integration.smoke_run import command, copy_corpus

_PATIENCE_S = 240


class Supervised:
    """`permcode pretrain --keep-alive` and the process that it started."""

    def __init__(self, folder: Path, corpus: Path) -> None:
        self.out, self.log = folder / "run", folder / "log"
        settings = ("pretrain.num_steps=3000", "pretrain.checkpoint.every_steps=50")
        words = command("pretrain", self.out, corpus, "--keep-alive", *settings)
        with self.log.open("wb") as log:
            environment = {**os.environ, "PYTHONPATH": os.getcwd()}
            self.process = subprocess.Popen(words, stdout=log, stderr=log, env=environment)

    def wait_for(self, reached: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + _PATIENCE_S
        while not reached():
            assert time.monotonic() < deadline_s, self.log.read_text()
            time.sleep(0.1)

    def newest_step(self) -> int:
        return max((int(path.name[5:]) for path in self.out.glob("pretrain-*/checkpoints/step-*")), default=0)

    def wait_for_more_steps(self) -> None:
        before = self.newest_step()
        self.wait_for(lambda: self.newest_step() > before)

    def child(self) -> psutil.Process:
        """The run, once it has been started."""
        supervisor = psutil.Process(self.process.pid)
        self.wait_for(lambda: bool(supervisor.children()))
        (child,) = supervisor.children()
        return child


@pytest.mark.slow
def test_a_killed_run_is_tried_again_and_a_stop_ends_both(tmp_path: Path) -> None:
    one = Supervised(tmp_path, copy_corpus(tmp_path / "corpus"))
    one.wait_for_more_steps()
    one.child().kill()
    one.wait_for(lambda: "the run ended (exit code 137); trying again" in one.log.read_text())
    child = one.child()  # workers of the killed run may still write a checkpoint
    one.wait_for(lambda: one.log.read_text().count("begins to work on the run") == 2)
    one.wait_for_more_steps()
    one.process.send_signal(signal.SIGINT)
    assert one.process.wait(_PATIENCE_S) == 130
    assert not child.is_running()
    assert "interrupted: the same command continues" in one.log.read_text()


@pytest.mark.slow
def test_a_killed_supervisor_takes_the_run_with_it_after_a_checkpoint(tmp_path: Path) -> None:
    one = Supervised(tmp_path, copy_corpus(tmp_path / "corpus"))
    one.wait_for_more_steps()
    child = one.child()
    one.process.kill()
    one.process.wait()
    one.wait_for(lambda: not child.is_running())
    assert "interrupted: the same command continues" in one.log.read_text()
