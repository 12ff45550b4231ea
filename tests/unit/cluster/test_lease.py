"""Who may write in a folder when `flock` is not shared: attempts have numbers, and an expired one ends."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cluster import lease as lease_module
from cluster.errors import UserError
from cluster.lease import HeldLease, Lease, LeaseGuard

HOLDER = """
import sys, time
from contextlib import ExitStack
from pathlib import Path
from cluster import lease
lease._RENEW_S = 0.1
with ExitStack() as stack:
    held = [stack.enter_context(lease.HeldLease(Path(folder))) for folder in sys.argv[1:]]
    print(held[0].lease.attempt, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same ratios of times, five to ten times as fast."""
    monkeypatch.setattr(lease_module, "LEASE_S", 3.0)
    monkeypatch.setattr(lease_module, "_RENEW_S", 0.3)
    monkeypatch.setattr(lease_module, "_READ_S", 0.1)
    monkeypatch.setattr(lease_module, "_SUCCESSOR_WAITS_S", 4.0)


def on_another_machine(folder: Path) -> None:
    """Make the folder's lease one of a machine whose processes cannot be looked up."""
    record = lease_module._read(folder)
    assert record is not None
    lease_module._write(folder, replace(record, boot="another machine"))


def holder(*folders: Path) -> "subprocess.Popen[str]":
    started = subprocess.Popen(
        [sys.executable, "-c", HOLDER, *map(str, folders)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert started.stdout is not None
    assert started.stdout.readline().strip().isdigit()
    return started


def test_attempts_are_counted_and_a_released_lease_is_not_waited_for(tmp_path: Path) -> None:
    waits: list[str] = []
    for attempt in (1, 2, 3):
        with HeldLease(tmp_path, waits.append) as held:
            assert held.lease == Lease(tmp_path, attempt)
            assert held.lease.is_held()
        assert not held.lease.is_held()
    assert waits == []


def test_a_killed_holder_of_this_machine_is_not_waited_for(tmp_path: Path) -> None:
    with holder(tmp_path) as killed:
        killed.kill()
        killed.wait()
        began_s = time.monotonic()
        with HeldLease(tmp_path) as held:
            assert held.lease.attempt == 2
        assert time.monotonic() - began_s < 2


def test_a_holder_that_vanished_elsewhere_is_waited_for_once_its_lease_has_expired(tmp_path: Path) -> None:
    waits: list[str] = []
    with holder(tmp_path) as vanished:
        vanished.kill()
    on_another_machine(tmp_path)
    began_s = time.monotonic()
    with HeldLease(tmp_path, waits.append) as held:
        assert held.lease.attempt == 2
        assert time.monotonic() - began_s >= 4.0
    assert len(waits) == 1
    assert "attempt 1" in waits[0]


def test_a_holder_that_vanished_elsewhere_is_waited_for_once_for_all_its_folders(tmp_path: Path) -> None:
    run, stage = tmp_path, tmp_path / "stage"
    stage.mkdir()
    with holder(run, stage) as vanished:
        vanished.kill()
    on_another_machine(run)
    on_another_machine(stage)
    waits: list[str] = []
    with HeldLease(run, waits.append), HeldLease(stage, waits.append) as held:
        assert held.lease.attempt == 2
    assert len(waits) == 1


def test_a_living_holder_is_not_displaced(tmp_path: Path) -> None:
    with holder(tmp_path) as living:
        with (
            pytest.raises(UserError, match="in use by another permcode process") as caught,
            HeldLease(tmp_path),
        ):
            pass
        assert str(living.pid) in str(caught.value)
        living.kill()


def test_a_frozen_holder_learns_that_it_was_displaced(tmp_path: Path) -> None:
    with HeldLease(tmp_path) as held:
        record = lease_module._read(tmp_path)
        assert record is not None
        lease_module._write(tmp_path, replace(record, attempt=2))
        deadline_s = time.monotonic() + 10
        while not held.is_lost():
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
    after = lease_module._read(tmp_path)
    assert after is not None
    assert (after.attempt, after.is_released) == (2, False)


def guarded(lease: Lease) -> tuple[list[str], threading.Event, LeaseGuard]:
    reasons: list[str] = []
    ended = threading.Event()

    def end(reason: str) -> None:
        reasons.append(reason)
        ended.set()

    return reasons, ended, LeaseGuard(lease, end)


def test_workers_live_while_the_lease_is_renewed(tmp_path: Path) -> None:
    with HeldLease(tmp_path) as held:
        reasons, ended, guard = guarded(held.lease)
        with guard:
            assert not ended.wait(3 * 1.5)
            assert reasons == []


def test_workers_end_when_the_lease_is_not_renewed(tmp_path: Path) -> None:
    with holder(tmp_path) as frozen:
        frozen.send_signal(signal.SIGSTOP)
        reasons, ended, guard = guarded(Lease(tmp_path, 1))
        began_s = time.monotonic()
        with guard:
            assert ended.wait(30)
        assert time.monotonic() - began_s >= 2.5
        assert "no sign" in reasons[0]
        frozen.kill()


@pytest.mark.parametrize("way", ["released", "later attempt"])
def test_workers_of_an_ended_attempt_end_at_once(tmp_path: Path, way: str) -> None:
    with HeldLease(tmp_path) as first:
        reasons, ended, guard = guarded(first.lease)
        with guard:
            first.release()
            if way == "later attempt":
                with HeldLease(tmp_path):
                    assert ended.wait(10)
            assert ended.wait(10)
        assert len(reasons) == 1


def test_storage_that_cannot_be_read_ends_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with HeldLease(tmp_path) as held:
        reasons, ended, guard = guarded(held.lease)

        def fail(folder: Path) -> None:
            raise OSError("no answer")

        with guard:
            with monkeypatch.context() as patched:
                patched.setattr(lease_module, "_read", fail)
                assert not ended.wait(4.5)
            assert not ended.wait(1)
        assert reasons == []


def claim(
    folder: str, barrier: "multiprocessing.synchronize.Barrier", results: "multiprocessing.Queue[int]"
) -> None:
    barrier.wait()
    try:
        with HeldLease(Path(folder)) as held:
            results.put(held.lease.attempt)
            time.sleep(5.0)
    except UserError:
        results.put(0)


def test_of_many_that_start_at_once_one_gets_the_lease(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(8), context.Queue()
    processes = [context.Process(target=claim, args=(str(tmp_path), barrier, results)) for _ in range(8)]
    for process in processes:
        process.start()
    attempts = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert sorted(attempts) == [0] * 7 + [1]


def test_a_process_killed_between_its_claim_and_its_lease_blocks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "_WRITE_AFTER_CLAIM_S", 0.3)
    (tmp_path / ".leases").mkdir()
    (tmp_path / ".leases" / "1").touch()
    with HeldLease(tmp_path) as held:
        assert held.lease.attempt == 2
