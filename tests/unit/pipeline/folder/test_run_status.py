"""Whether a run's command lives, as seen from its machine and from another one, whose clock is another."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cluster import lease as lease_module
from cluster import run_state
from cluster.lease import HeldLease, LeaseSight
from cluster.run_state import RunState, WorkProgress
from pipeline.cli import app
from pipeline.folder import status_facts
from pipeline.folder.run_status import RunStatus, read_run_status
from pipeline.folder.status_facts import read_facts
from tests.unit.pipeline.status_runs import RunOnDisk

AN_HOUR_S = 3600.0


@pytest.fixture
def run(tmp_path: Path) -> RunOnDisk:
    return RunOnDisk(tmp_path / "out")


@contextmanager
def on_another_machine(folder: Path, renewals: int) -> Iterator[None]:
    """A lease that another machine holds and renews so many times, every 0.2 s."""
    record = replace(lease_module._Record.own(4), boot="another machine", host="far", pid=os.getpid() + 1)
    lease_module._write(folder, record)
    ended = threading.Event()

    def renew() -> None:
        for number in range(1, renewals + 1):
            if ended.wait(0.2):
                return
            lease_module._write(folder, replace(record, renewal=number))

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def seen(folder: Path) -> RunStatus:
    found = read_run_status(folder)
    assert found is not None
    return found


def test_a_run_of_a_version_without_leases_has_no_status(run: RunOnDisk) -> None:
    assert read_run_status(run.out) is None


def test_a_command_of_this_machine_is_seen_at_once(run: RunOnDisk) -> None:
    with HeldLease(run.out), run_state.written_to(run.out):
        run_state.change(stage="pretrain", attempt=2, num_workers=4, waiting_for="room for 4 workers")
        while seen(run.out).state != "waiting":
            time.sleep(0.05)
        status = seen(run.out)
        assert status.lease.watched_s < 1
        assert ("stage", "pretrain, attempt 2 with 4 workers") in status.lines()
        assert ("waiting for", "room for 4 workers") in status.lines()
    assert seen(run.out).state == "finished"


def test_a_command_of_another_machine_lives_if_its_lease_is_renewed_while_it_is_watched(
    run: RunOnDisk,
) -> None:
    with on_another_machine(run.out, renewals=10_000):
        status = seen(run.out)
    assert (status.state, status.lease.host, status.lease.is_here) == ("running", "far", False)
    assert "its lease was renewed while this command watched" in dict(status.lines())["command"]


def test_a_lease_that_is_not_renewed_is_dead_however_fresh_its_file_is(
    run: RunOnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.folder.run_status.look_at_lease", quick_look)
    with on_another_machine(run.out, renewals=0):
        status = seen(run.out)
    assert status.state == "dead"
    assert "DEAD: process" in dict(status.lines())["command"]
    assert "its lease was not renewed in 1 s" in dict(status.lines())["command"]


def quick_look(folder: Path) -> LeaseSight | None:
    return lease_module.look_at_lease(folder, patience_s=1.0)


def test_a_killed_command_of_this_machine_is_dead_at_once(run: RunOnDisk) -> None:
    record = replace(lease_module._Record.own(1), started_s=1.0)
    lease_module._write(run.out, record)
    status = seen(run.out)
    assert (status.state, status.lease.state) == ("dead", "gone")
    assert status.lease.watched_s < 1


def fail_without_room(out: Path) -> None:
    with HeldLease(out), run_state.written_to(out):
        run_state.change_nodes(["b (10.0.0.2)"])
        run_state.change(stage="pretrain", progress=WorkProgress("pretrain", 500, 2000, "tokens", "loss 3.2"))
        raise ValueError("no room")


def test_why_a_command_failed_and_what_was_lost_is_shown(run: RunOnDisk) -> None:
    with pytest.raises(ValueError, match="no room"):
        fail_without_room(run.out)
    run.attempt(3)
    status = seen(run.out)
    assert status.state == "failed"
    assert status.tokens_per_s == 256.0
    lines = dict(status.lines())
    assert lines["command"].startswith("failed (no room): process")
    assert lines["progress"] == "pretrain: 500 of 2000 tokens (25.0%), 256 tokens/s, loss 3.2"
    assert lines["lost nodes"] == "b (10.0.0.2)"


def test_the_command_line_shows_it_and_gives_it_to_programs(run: RunOnDisk) -> None:
    run.attempt(2)
    with HeldLease(run.out), run_state.written_to(run.out):
        shown = CliRunner().invoke(app, ["status", str(run.out)])
        as_json = CliRunner().invoke(app, ["status", str(run.out), "--json"])
    assert shown.exit_code == as_json.exit_code == 0
    assert f"command                 running: process {os.getpid()}" in shown.stdout
    found: dict[str, Any] = json.loads(as_json.stdout)["run"]
    assert (found["state"], found["lease"]["pid"]) == ("running", os.getpid())
    assert found["command"]["ended"] == ""


def test_before_pretraining_the_command_says_what_prep_does(run: RunOnDisk) -> None:
    with HeldLease(run.out), run_state.written_to(run.out):
        run_state.change(stage="prep", progress=WorkProgress("read", 5, 10, "MB"))
        while seen(run.out).command.progress is None:
            time.sleep(0.05)
        shown = CliRunner().invoke(app, ["status", str(run.out)]).stdout
    assert "pretraining has not begun; finished: nothing" in shown
    assert "progress                read: 5 of 10 MB (50.0%)" in shown


@pytest.mark.parametrize("clock_off_s", [-AN_HOUR_S, AN_HOUR_S])
def test_a_pretraining_elsewhere_lives_if_its_heart_beats_whatever_its_clock_says(
    run: RunOnDisk, clock_off_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_facts, "STALE_S", 1.0)
    run.clock_s = time.time() + clock_off_s - 5
    run.event("attempt", process_started_s=run.clock_s, previous_beat_s=None, host="far")
    run.event("start", step=0, num_steps=40, world_size=2)
    run.one_step()
    run.beat()
    assert read_facts(run.folder).state == "dead"

    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(0.1):
            run.clock_s += 0.1
            run.beat()

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        facts = read_facts(run.folder)
    finally:
        ended.set()
        thread.join()
    assert facts.state == "running"
    assert facts.last_step_age_s is not None
    assert 0 <= facts.last_step_age_s < 60


def test_the_state_of_a_command_without_a_state_file_is_that_of_its_lease(run: RunOnDisk) -> None:
    with HeldLease(run.out):
        assert (seen(run.out).state, seen(run.out).command) == ("running", RunState())
