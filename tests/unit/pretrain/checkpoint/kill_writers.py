"""Kill ranks that write checkpoints at every fault point, start again and compare: `python -m ...kill_writers EVERY`.

Two ranks are two processes, forked from this one, so that a case costs milliseconds; they share nothing but files, as
in a run, and "train" a state that each step makes from the one before it. A case lets one rank kill itself at one
fault point; the other dies with it, as a rank whose peer is gone does. Then the same is started again.
"""

import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from cluster.journal import Level
from pretrain.checkpoint.listing import step_of
from pretrain.checkpoint.reading import CheckpointTensors, state_digest
from pretrain.checkpoint.retention import remove_unfinished
from pretrain.checkpoint.verify import newest_valid
from pretrain.checkpoint.writer import CheckpointWriter
from pretrain.config import CheckpointConfig
from pretrain.journal.events import CheckpointWaited, CheckpointWritten, Event
from tests.checkpoints import STATIC, snapshot_of, write_checkpoint

_RANKS = 2
_BEGUN_STEP = 1
_LAST_STEP = 4
_KEEP = CheckpointConfig(keep=1)


def main() -> None:
    """Try every EVERY-th kill; the last line printed says how many there were."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder = Path(name)
        _prepare(folder / "begun")
        log = folder / "log"
        wanted = _untouched(folder, log)
        kills = log.read_text().split()
        tried = kills[:: int(sys.argv[1])]
        for kill in tried:
            _try(kill, folder, wanted)
        print(
            f"{len(tried)} kills of {len(kills)}, points: {' '.join(sorted({k.split(':')[0] for k in kills}))}"
        )


def _prepare(checkpoints: Path) -> None:
    """The first step is sound, the second is damaged."""
    for step in (_BEGUN_STEP, _BEGUN_STEP + 1):
        write_checkpoint(checkpoints, step, world_size=_RANKS)
    (checkpoints / "step-00000002" / "optimizer-00001.safetensors").write_bytes(b"")


def _untouched(folder: Path, log: Path) -> dict[int, str]:
    """Digests by step of a run that nobody kills; every checkpoint stays."""
    whole = folder / "whole"
    shutil.copytree(folder / "begun", whole)
    everything = CheckpointConfig(keep=100)
    assert _attempt(whole, "first", {"PERMCODE_FAULT_LOG": str(log)}, everything) == [0, 0]
    return {step: state_digest(path) for path in whole.iterdir() if (step := step_of(path)) is not None}


def _try(kill: str, folder: Path, wanted: dict[int, str]) -> None:
    checkpoints = folder / "case"
    shutil.copytree(folder / "begun", checkpoints)
    codes = _attempt(checkpoints, "first", {"PERMCODE_FAULT": kill}, _KEEP)
    assert codes[int(kill.split(":")[2])] == -signal.SIGKILL, f"{kill}: not reached ({codes})"
    reported = checkpoints / "reported"
    # A kill may come between the making of the file and the writing of its first line.
    last_reported = int(
        ([str(_BEGUN_STEP)] + (reported.read_text().split() if reported.exists() else []))[-1]
    )
    found = newest_valid(checkpoints, lambda damaged: None)
    assert found is not None, f"{kill}: no checkpoint is left"
    step = step_of(found) or 0
    assert step >= last_reported, f"{kill}: {last_reported} was reported, {step} is there"
    assert state_digest(found) == wanted[step], f"{kill}: step {step} is another state"
    assert _attempt(checkpoints, "second", {}, _KEEP) == [0, 0], f"{kill}: the second start failed"
    reported.unlink(missing_ok=True)
    # A kill between the last checkpoint and the removal of the one before it leaves both.
    left = {step_of(path) for path in checkpoints.iterdir()}
    assert left in ({_LAST_STEP}, {_LAST_STEP, _LAST_STEP - 1}), f"{kill}: {os.listdir(checkpoints)} is left"
    assert state_digest(checkpoints / f"step-{_LAST_STEP:08d}") == wanted[_LAST_STEP], f"{kill}: another end"
    shutil.rmtree(checkpoints)


def _attempt(checkpoints: Path, token: str, environment: dict[str, str], keep: CheckpointConfig) -> list[int]:
    """Start all ranks as a run does; the exit codes."""
    remove_unfinished(checkpoints)
    found = newest_valid(checkpoints, lambda damaged: None)
    assert found is not None
    ranks = [
        _forked(lambda rank=rank: _train(rank, checkpoints, found, token, keep), rank, environment)
        for rank in range(_RANKS)
    ]
    return _wait(ranks)


def _forked(work: Callable[[], None], rank: int, environment: dict[str, str]) -> int:
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.environ.update(environment, RANK=str(rank))
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _wait(processes: list[int]) -> list[int]:
    """Exit codes; when one was killed, so are the others, a moment later."""
    codes: dict[int, int] = {}
    while len(codes) < len(processes):
        process, status = os.wait()
        codes[process] = os.waitstatus_to_exitcode(status)
        if codes[process]:
            time.sleep(0.002)
            for other in set(processes) - codes.keys():
                os.kill(other, signal.SIGKILL)
    return [codes[process] for process in processes]


def _train(rank: int, checkpoints: Path, origin: Path, token: str, keep: CheckpointConfig) -> None:
    checkpoint = CheckpointTensors(origin)
    weights = {name: checkpoint.master(name) for name in checkpoint.names}

    def report(text: str, event: Event, level: Level) -> None:
        if isinstance(event, CheckpointWaited):  # the machine is busy
            return
        assert isinstance(event, CheckpointWritten), text
        with (checkpoints / "reported").open("a") as file:
            file.write(f"{event.step}\n")

    writer = CheckpointWriter(checkpoints, rank, _RANKS, keep, report, resumed_step=checkpoint.step)
    for step in range(checkpoint.step + 1, _LAST_STEP + 1):
        weights = _advanced(weights, step)
        snapshot = snapshot_of(step, rank, _RANKS, weights=weights)
        writer.begin(snapshot, token, STATIC if rank == 0 else None, "cadence")
    writer.wait()


def _advanced(weights: dict[str, Tensor], step: int) -> dict[str, Tensor]:
    return {name: weight * 0.75 + step for name, weight in weights.items()}


if __name__ == "__main__":
    main()
