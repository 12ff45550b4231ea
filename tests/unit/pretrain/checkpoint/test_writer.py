"""Checkpoints in the background: the caller does not wait, and a failing disk costs a checkpoint, not the run."""

import errno
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.journal import Level
from pretrain.checkpoint import writer as writer_module
from pretrain.checkpoint.rank_files import temporary_folder
from pretrain.checkpoint.reading import CheckpointTensors
from pretrain.checkpoint.verify import Damaged, newest_valid
from pretrain.checkpoint.writer import CheckpointWriter
from pretrain.config import CheckpointConfig
from pretrain.journal.events import Event
from tests.checkpoints import (
    TOKEN,
    begin_all,
    begin_one,
    memory_of,
    snapshot_of,
    weights_of,
    write_checkpoint,
)


@dataclass
class Events:
    """What rank 0 reported: text, level, name and facts."""

    all: list[tuple[str, Level, str, dict[str, Any]]] = field(default_factory=list)

    def __call__(self, text: str, event: Event, level: Level) -> None:
        self.all.append((text, level, event.name, event.facts()))

    @property
    def names(self) -> list[str]:
        return [name for _, _, name, _ in self.all]


@pytest.fixture(autouse=True)
def _busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting is reported only in the test of it, however slow the machine is."""
    monkeypatch.setattr(writer_module, "LONG_WAIT_S", 3600.0)


def nothing_damaged(damaged: Damaged) -> None:
    raise AssertionError(str(damaged))


def writers_of(
    checkpoints: Path, world_size: int, on_event: Events, keep: int = 100, **more: Any
) -> list[CheckpointWriter]:
    config = CheckpointConfig(keep=keep)
    return [
        CheckpointWriter(checkpoints, rank, world_size, config, on_event, **more)
        for rank in range(world_size)
    ]


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_the_state_comes_back_whole_whoever_wrote_it(tmp_path: Path, world_size: int) -> None:
    state = {"seed": 7, "health": {"losses": [1.5, 2.0]}}
    folder = write_checkpoint(tmp_path, 30, world_size=world_size, state=state, num_lanes=4)
    assert newest_valid(tmp_path, nothing_damaged) == folder
    checkpoint, weights = CheckpointTensors(folder), weights_of(30)
    assert (checkpoint.step, checkpoint.cursor, checkpoint.adam_steps, checkpoint.num_lanes) == (
        30,
        32,
        30,
        4,
    )
    assert checkpoint.state == state | {"format": 3, "step": 30, "cursor": 32, "adam_steps": 30}
    assert checkpoint.names == sorted(weights)
    for name, weight in weights.items():
        assert torch.equal(checkpoint.master(name), weight)
        assert torch.equal(checkpoint.moment("exp_avg", name), weight * 0.5)
        assert torch.equal(checkpoint.moment("exp_avg_sq", name), weight * 0.25)
        half, end = weight.numel() // 2, weight.numel()
        assert torch.equal(checkpoint.master_part(name, half, end), weight.flatten()[half:])
        assert torch.equal(checkpoint.moment_part("exp_avg", name, half, end), weight.flatten()[half:] * 0.5)
    assert torch.equal(checkpoint.memory(range(1, 4)).layers_BMD[1], memory_of(range(1, 4), 30).layers_BMD[1])
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_a_checkpoint_is_reported_once_it_is_complete(tmp_path: Path) -> None:
    events = Events()
    (writer,) = writers_of(tmp_path, 1, events)
    assert writer.begin(snapshot_of(5), TOKEN, None, "stop", copy_s=2.5) < 30.0
    assert writer.wait(60)
    ((text, level, name, facts),) = events.all
    assert (level, name) == ("info", "checkpoint")
    assert text.startswith("checkpoint step-00000005: 0.0 MB written in ")
    files = [path for path in (tmp_path / "step-00000005").iterdir() if path.name != "COMMIT.json"]
    assert facts["bytes"] == sum(path.stat().st_size for path in files)
    assert (facts["step"], facts["cursor"], facts["reason"]) == (5, 7, "stop")
    assert 2.5 <= facts["stall_s"] < 30.0
    assert 0.0 < facts["write_s"] < 60.0


def test_the_caller_continues_while_other_ranks_still_write(tmp_path: Path) -> None:
    events = Events()
    first, second = writers_of(tmp_path, 2, events)
    begin_one(first, 1, 0, 2)
    assert not first.wait(0.1), "rank 1 has not written anything yet"
    assert newest_valid(tmp_path, nothing_damaged) is None
    begin_one(second, 1, 1, 2)
    assert first.wait(60)
    assert second.wait(60)
    assert newest_valid(tmp_path, nothing_damaged) == tmp_path / "step-00000001"


def test_a_second_checkpoint_waits_for_the_first_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "LONG_WAIT_S", 0.1)
    events = Events()
    first, second = writers_of(tmp_path, 2, events)
    begin_one(first, 1, 0, 2)
    late = threading.Timer(0.2, begin_one, (second, 1, 1, 2))
    late.start()
    assert 0.1 < begin_one(first, 2, 0, 2) < 30.0
    late.join()
    assert begin_one(second, 2, 1, 2) >= 0.0
    assert first.wait(60)
    assert events.names == ["checkpoint", "checkpoint_waited", "checkpoint"]
    assert "waited" in events.all[1][0]
    assert events.all[2][3]["stall_s"] > 0.1


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("name", ["weights-{:05d}", "optimizer-{:05d}", "memory-{:05d}"])
def test_a_full_disk_on_any_rank_costs_only_that_checkpoint(tmp_path: Path, rank: int, name: str) -> None:
    """The kernel's own ENOSPC: one of the files is /dev/full."""
    events = Events()
    writers = writers_of(tmp_path, 2, events)
    begin_all(writers, 1)
    temporary = temporary_folder(tmp_path, 2, TOKEN)
    temporary.mkdir()
    number = rank * 2 if name.startswith("memory") else rank
    (temporary / f"{name.format(number)}.safetensors").symlink_to("/dev/full")
    begin_all(writers, 2)
    assert all(writer.wait(60) for writer in writers)
    text, level, event, facts = events.all[-1]
    assert (level, event, facts["step"]) == ("warning", "checkpoint_failed", 2)
    assert f"worker {rank}: [Errno 28] No space left on device" in text
    assert os.listdir(tmp_path) == ["step-00000001"]
    begin_all(writers, 3)
    assert all(writer.wait(60) for writer in writers)
    assert events.names == ["checkpoint", "checkpoint_failed", "checkpoint"]
    assert newest_valid(tmp_path, nothing_damaged) == tmp_path / "step-00000003"


def test_a_disk_without_room_for_the_list_keeps_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = Events()
    (writer,) = writers_of(tmp_path, 1, events, keep=1)
    begin_one(writer, 1, 0, 1)
    assert writer.wait(60)

    def no_room(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", no_room)
    begin_one(writer, 2, 0, 1)
    assert writer.wait(60)
    assert events.names == ["checkpoint", "checkpoint_failed"]
    assert writer.newest_step == 1
    assert os.listdir(tmp_path) == ["step-00000001"]


def test_rank_0_gives_up_on_a_rank_that_does_not_come(tmp_path: Path) -> None:
    events = Events()
    first, second = writers_of(tmp_path, 2, events, part_timeout_s=0.2)
    begin_all([first, second], 1)
    assert first.wait(60)
    assert second.wait(60)
    begin_one(first, 2, 0, 2)
    assert first.wait(60)
    text, level, name, _ = events.all[-1]
    assert (level, name) == ("warning", "checkpoint_failed")
    assert "worker 1 has not written its files within 0.2 s" in text
    begin_one(second, 2, 1, 2)  # too late, and nobody's harm
    assert second.wait(60)
    assert newest_valid(tmp_path, nothing_damaged) == tmp_path / "step-00000001"
    begin_all([first, second], 3)
    assert first.wait(60)
    assert sorted(os.listdir(tmp_path)) == ["step-00000001", "step-00000003"], "what came late is gone"


def test_what_another_attempt_left_is_not_mixed_in(tmp_path: Path) -> None:
    """A killed attempt's rank 1 has written its part of the same step, and lives on to write more."""
    old = temporary_folder(tmp_path, 1, "an attempt before")
    stale = CheckpointWriter(tmp_path, 1, 2, CheckpointConfig(), Events())
    stale.begin(snapshot_of(1, 1, 2, weights=weights_of(99)), "an attempt before", None, "cadence")
    assert stale.wait(60)
    assert old.is_dir()
    folder = write_checkpoint(tmp_path, 1, world_size=2)
    checkpoint = CheckpointTensors(folder)
    for name, weight in weights_of(1).items():
        assert torch.equal(checkpoint.master(name), weight)


def test_a_damaged_checkpoint_is_replaced_and_does_not_count_as_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        write_checkpoint(tmp_path, step)
    for step in (3, 4):
        (tmp_path / f"step-0000000{step}" / "weights-00000.safetensors").write_bytes(b"")
    reported: list[Damaged] = []
    assert newest_valid(tmp_path, reported.append) == tmp_path / "step-00000002"
    events = Events()
    (writer,) = writers_of(tmp_path, 1, events, keep=2, resumed_step=2)
    begin_one(writer, 4, 0, 1)
    assert writer.wait(60)
    assert events.names == ["checkpoint"]
    assert sorted(os.listdir(tmp_path)) == ["step-00000002", "step-00000004"]
    assert newest_valid(tmp_path, nothing_damaged) == tmp_path / "step-00000004"


def test_a_state_that_is_already_saved_is_left_as_it_is(tmp_path: Path) -> None:
    """There is no moment without it, should a kill come."""
    events = Events()
    (writer,) = writers_of(tmp_path, 1, events)
    for _ in range(2):
        begin_one(writer, 1, 0, 1)
        assert writer.wait(60)
    assert events.names == ["checkpoint"]
    inode = (tmp_path / "step-00000001").stat().st_ino
    (resumed,) = writers_of(tmp_path, 1, events, resumed_step=1)
    begin_one(resumed, 1, 0, 1)
    assert resumed.wait(60)
    assert (tmp_path / "step-00000001").stat().st_ino == inode
    assert os.listdir(tmp_path) == ["step-00000001"]


def test_a_mistake_of_ours_is_not_swallowed_by_the_thread(tmp_path: Path) -> None:
    (writer,) = writers_of(tmp_path, 1, Events())
    begin_one(writer, 1, 0, 1, state={"no JSON": object()})
    with pytest.raises(TypeError, match="not JSON serializable"):
        writer.wait(60)
    assert writer.wait(60)


def test_a_checkpoint_whose_steps_are_not_recorded_is_not_made(tmp_path: Path) -> None:
    events = Events()
    writers = writers_of(tmp_path, 2, events, steps_are_recorded=lambda: False)
    begin_all(writers, 4)
    assert all(writer.wait() for writer in writers)
    assert events.names == ["checkpoint_failed"]
    assert "cannot be recorded" in events.all[0][0]
    assert writers[0].newest_step is None
    assert not list(tmp_path.glob("step-*"))
