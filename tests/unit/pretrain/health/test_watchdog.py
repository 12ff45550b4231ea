"""Real workers that hang, are frozen, or get on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pretrain.files import PretrainFiles
from pretrain.health.watchdog import EXIT_HANGING, Progress, Watchdog, write_interval_s

_WORKER = """
import sys, time
from pathlib import Path
from pretrain.health.watchdog import Watchdog

folder, rank, hangs_in, hangs_at = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])

def read_forever():
    while True:
        time.sleep(0.05)

with Watchdog(folder, rank, 2, hang_timeout_s=0.8) as watchdog:
    for step in range(int(sys.argv[5])):
        for phase in ("read", "forward", "exchange"):
            watchdog.at(step, phase)
            if step == hangs_at and phase == hangs_in:
                print("hangs", flush=True)
                read_forever()
        time.sleep(0.03)
"""


_EVALUATING = """
import sys, time
from pathlib import Path
from pretrain.health.watchdog import Watchdog

with Watchdog(Path(sys.argv[1]), int(sys.argv[2]), 2, hang_timeout_s=0.8) as watchdog:
    watchdog.at(5, "evaluate")
    for part in range(int(sys.argv[3])):
        time.sleep(0.05)
        watchdog.tick()
    time.sleep(60)
"""


def start(folder: Path, rank: int, phase: str, step: int, num_steps: int = 30) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", _WORKER, str(folder), str(rank), phase, str(step), str(num_steps)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[4])


def verdict(folder: Path) -> str:
    text: str = json.loads((folder / PretrainFiles.HANG).read_text())["text"]
    return text


def test_the_worker_that_the_others_wait_for_is_named_with_stacks_of_all(tmp_path: Path) -> None:
    """Worker 1 reads for ever; worker 0 waits for it in the exchange of the same step."""
    workers = [start(tmp_path, 0, "exchange", 5), start(tmp_path, 1, "read", 5)]
    codes = [worker.wait(timeout=30) for worker in workers]
    [worker.stdout.close() for worker in workers if worker.stdout]
    assert codes == [EXIT_HANGING, EXIT_HANGING]
    assert verdict(tmp_path).startswith(f"worker 1 (process {workers[1].pid} on ")
    assert "hangs at step 6 (read)" in verdict(tmp_path)
    assert "read_forever" in (tmp_path / "hang" / "rank-00001.txt").read_text()
    assert (tmp_path / "hang" / "rank-00000.txt").stat().st_size > 0


def test_a_frozen_worker_is_named_though_it_can_say_nothing(tmp_path: Path) -> None:
    frozen = start(tmp_path, 1, "none", 0, num_steps=10_000)
    deadline_s = time.monotonic() + 30
    while not (tmp_path / "progress" / "rank-00001.json").exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    frozen.send_signal(signal.SIGSTOP)
    workers = [start(tmp_path, 0, "forward", 20, num_steps=10_000), frozen]
    try:
        assert workers[0].wait(timeout=30) == EXIT_HANGING
    finally:
        workers[1].kill()
        workers[1].wait()
        [worker.stdout.close() for worker in workers if worker.stdout]
    assert verdict(tmp_path).startswith(f"worker 1 (process {workers[1].pid} on ")
    assert "silent for" in verdict(tmp_path)


def test_a_worker_that_cannot_write_ends_all_the_same(tmp_path: Path) -> None:
    """As on a full disk: there is no room for stacks, nor for the verdict."""
    (tmp_path / "hang").write_text("a file where the folder should be")
    (tmp_path / PretrainFiles.HANG).mkdir()
    worker = start(tmp_path, 0, "read", 2)
    assert worker.wait(timeout=30) == EXIT_HANGING
    assert worker.stdout is not None
    worker.stdout.close()


def test_a_worker_may_be_long_in_one_phase_while_it_does_part_after_part(tmp_path: Path) -> None:
    """Both evaluate for longer than the timeout; worker 0 then waits for the part that worker 1 hangs in."""
    began_s = time.monotonic()
    workers = [
        subprocess.Popen([sys.executable, "-c", _EVALUATING, str(tmp_path), str(rank), str(parts)])
        for rank, parts in enumerate((30, 29))
    ]
    assert [worker.wait(timeout=60) for worker in workers] == [EXIT_HANGING, EXIT_HANGING]
    assert time.monotonic() - began_s > 29 * 0.05 + 0.8
    assert verdict(tmp_path).startswith(f"worker 1 (process {workers[1].pid} on ")
    assert "hangs at step 6 (evaluate)" in verdict(tmp_path)


@pytest.mark.parametrize("rank", [0, 1])
def test_workers_that_get_on_are_left_alone(tmp_path: Path, rank: int) -> None:
    worker = start(tmp_path, rank, "none", 0)
    assert worker.wait(timeout=30) == 0
    assert worker.stdout is not None
    worker.stdout.close()
    assert not (tmp_path / PretrainFiles.HANG).exists()
    assert json.loads((tmp_path / "progress" / f"rank-{rank:05d}.json").read_text())["rank"] == rank


def test_of_two_in_the_same_micro_batch_the_one_in_its_forward_pass_is_further_behind() -> None:
    def place(step: int, phase: str, micro_batch: int) -> tuple[int, int, int, int]:
        return Progress(0, step, phase, micro_batch, "host", 1, 0.0).sort_key()

    in_order = [
        (4, "save", 0), (5, "read", 0), (5, "forward", 0), (5, "backward", 0), (5, "forward", 8), (5, "backward", 8),
        (5, "exchange", 0), (5, "evaluate", 0), (5, "save", 0), (6, "read", 0),
    ]  # fmt: skip
    places = [place(*entry) for entry in in_order]
    assert places == sorted(places)
    assert len(set(places)) == len(places)


def test_a_thousand_workers_write_no_more_often_than_a_few_hundred() -> None:
    for world_size in (1, 16, 250):
        assert write_interval_s(world_size, 1800.0) == 5.0
    for world_size in (512, 1024, 4096):
        assert world_size / write_interval_s(world_size, 1800.0) == pytest.approx(50.0)
    assert write_interval_s(1024, 60.0) == 7.5, "a short timeout needs progress in time"
    assert write_interval_s(2, 0.1) == 0.05


def test_the_verdict_lists_once_and_leaves_out_ranks_of_a_larger_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dogs = [Watchdog(tmp_path, rank, 64, hang_timeout_s=1800.0) for rank in range(64)]
    for rank, dog in enumerate(dogs[:-4]):
        dog.at(100 - rank, "exchange")
        dog.write_progress()
    listings, listdir = 0, os.listdir

    def count_listing(folder: Path) -> list[str]:
        nonlocal listings
        listings += 1
        return listdir(folder)

    monkeypatch.setattr(os, "listdir", count_listing)
    assert dogs[0].verdict().startswith("worker 59 (")
    assert listings == 1
    smaller = Watchdog(tmp_path, 0, 8, hang_timeout_s=1800.0)
    smaller.at(100, "exchange")
    smaller.write_progress()
    assert smaller.verdict().startswith("worker 7 (")


def test_one_worker_alone_reads_the_progress_of_all(tmp_path: Path) -> None:
    """Two that notice at the same moment, before either has written the verdict."""
    workers = [start(tmp_path, rank, "exchange", 3) for rank in range(2)]
    assert [worker.wait(timeout=30) for worker in workers] == [EXIT_HANGING, EXIT_HANGING]
    [worker.stdout.close() for worker in workers if worker.stdout]
    assert (tmp_path / "hang" / "verdict").exists()
    Watchdog(tmp_path, 0, 2, hang_timeout_s=1800.0)
    assert not (tmp_path / "hang" / "verdict").exists(), "the next attempt may hang, too"
