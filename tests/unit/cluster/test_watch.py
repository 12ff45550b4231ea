"""A block that lost what it needs ends soon, cleanly if possible, and raises the loss."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.errors import RetryableError, UnfinishedError, UserError
from cluster.watch import is_block_lost, watch_block
from pretrain.health.stop import wait_or_stop

_LOSS = RetryableError("the ground is gone")
STUBBORN = """
import time
from cluster import watch
from cluster.errors import {kind}
watch._MAX_END_S = watch._INTERRUPT_AGAIN_S = 0.5
with watch.watch_block(lambda: {kind}("the ground is gone"), close=lambda: None):
    while True:
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            pass
"""

STOPPED = """
import subprocess, sys, threading, time
from cluster import watch
from cluster.errors import RetryableError
watch._MAX_END_S = watch._INTERRUPT_AGAIN_S = {again_s}
needed = subprocess.Popen(["sleep", "60"])

def look():
    if threading.current_thread() is threading.main_thread():
        needed.wait()  # it ends in the same moment: which is seen first is chance
    return RetryableError("the ground is gone") if needed.poll() is not None else None

watch.interrupt_on_sigterm()
try:
    with watch.watch_block(look, close=lambda: None):
        print("ready", flush=True)
        while True:
            try:
                time.sleep(60)
            except KeyboardInterrupt:
                if {ends}:
                    raise
except KeyboardInterrupt:
    sys.exit(130)
except RetryableError:
    sys.exit(75)
"""


def run_block(look: Callable[[], Exception | None], work: Callable[[], object]) -> list[str]:
    closed: list[str] = []
    with watch_block(look, close=lambda: closed.append("closed")):
        work()
    return closed


def test_a_block_without_loss_ends_as_it_would() -> None:
    assert run_block(lambda: None, lambda: None) == ["closed"]
    with pytest.raises(UserError, match="bad corpus"):
        run_block(lambda: None, lambda: (_ for _ in ()).throw(UserError("bad corpus")).send(None))


def test_a_block_that_waits_is_interrupted() -> None:
    start_s = time.monotonic()
    with pytest.raises(RetryableError, match="the ground is gone"):
        run_block(lambda: _LOSS, lambda: time.sleep(300))
    assert time.monotonic() - start_s < 60
    assert not is_block_lost()


def test_errors_caused_by_the_loss_are_not_raised() -> None:
    with pytest.raises(RetryableError, match="the ground is gone"):
        run_block(lambda: _LOSS, lambda: 1 // 0)


def test_workers_are_not_asked_to_stop_after_a_loss(tmp_path: Path) -> None:
    with pytest.raises(RetryableError, match="the ground is gone"):
        run_block(
            lambda: _LOSS,
            lambda: wait_or_stop(lambda: False, (tmp_path / "stop").touch),
        )
    assert not (tmp_path / "stop").exists()


@pytest.mark.parametrize(("kind", "code"), [(RetryableError, 75), (UnfinishedError, 2)])
def test_a_block_that_does_not_end_exits_with_the_message_and_the_code(kind: type, code: int) -> None:
    program = STUBBORN.format(kind=kind.__name__)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.endswith(": the ground is gone\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("ends", "again_s"), [("True", 5.0), ("watch.is_block_lost()", 5.0), ("False", 0.5)])
def test_a_stop_of_all_processes_of_a_job_is_a_stop(ends: str, again_s: float) -> None:
    """systemd and Slurm send the SIGTERM to Ray's processes as well."""
    program = STOPPED.format(ends=ends, again_s=again_s)
    command = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True
    )
    assert command.stdout is not None
    assert command.stdout.readline() == b"ready\n"
    os.killpg(command.pid, signal.SIGTERM)
    assert command.wait(timeout=120) == 130
    command.stdout.close()
