"""Commits are whole or not there; damage is named and passed over."""

import os
import shutil
from pathlib import Path

import pytest
import torch

from cluster.errors import UserError
from pretrain import checkpoint
from pretrain.engine.build import EngineState
from pretrain.model.memory import SegmentMemory

RUN = "run-fingerprint"


def write_commit(checkpoints: Path, step: int, keep: int = 3) -> Path:
    folder = checkpoint.temporary_folder(checkpoints, step)
    folder.mkdir(parents=True)
    weights = {"layer.weight": torch.full((2, 3), float(step))}
    moments = {f"{kind}.layer.weight": torch.ones(2, 3) * step for kind in ("exp_avg", "exp_avg_sq")}
    checkpoint.write_engine_state(folder, EngineState(weights, moments, step), step, RUN)
    for first_lane in (2, 0):  # two workers, in whatever order they come
        layer = torch.full((2, 4, 3), float(first_lane), dtype=torch.bfloat16)
        memory = SegmentMemory((layer, layer + 1), torch.full((2, 4), first_lane), torch.zeros(2, 4))
        checkpoint.write_memory(folder, memory, first_lane)
    return checkpoint.commit(checkpoints, step, keep)


def fail(text: str) -> None:
    raise AssertionError(f"nothing is damaged, but: {text}")


def test_what_was_committed_is_loaded_with_lanes_in_order(tmp_path: Path) -> None:
    write_commit(tmp_path, 10)
    found = checkpoint.newest_valid(tmp_path, fail)
    assert found is not None
    loaded = checkpoint.load(found, RUN)
    assert loaded.step == loaded.engine.adam_steps == 10
    assert torch.equal(loaded.engine.masters["layer.weight"], torch.full((2, 3), 10.0))
    assert loaded.memory.group_BM[:, 0].tolist() == [0, 0, 2, 2]
    assert loaded.memory.layers_BMD[1].dtype == torch.bfloat16
    assert loaded.memory.layers_BMD[1][2, 0, 0] == 3.0


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        write_commit(tmp_path, step, keep=2)
    assert sorted(os.listdir(tmp_path)) == ["step-00000003", "step-00000004"]


@pytest.mark.parametrize(
    "name", ["weights.safetensors", "memory-00002.safetensors", "state.json", "COMMIT.json"]
)
@pytest.mark.parametrize("damage", ["flip a bit", "cut short", "remove"])
def test_a_damaged_commit_is_named_and_the_one_before_it_used(tmp_path: Path, name: str, damage: str) -> None:
    write_commit(tmp_path, 1)
    path = write_commit(tmp_path, 2) / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if damage == "flip a bit":
        path.write_bytes(data)
    elif damage == "cut short":
        path.write_bytes(data[: len(data) // 2])
    else:
        path.unlink()
    told: list[str] = []
    found = checkpoint.newest_valid(tmp_path, told.append)
    if name == "COMMIT.json" and damage == "flip a bit" and not told:
        pytest.fail("a flipped bit in the commit itself went unseen")
    assert found == tmp_path / "step-00000001"
    assert len(told) == 1
    assert "step-00000002" in told[0]
    assert name in told[0] or damage == "flip a bit"


def test_no_valid_commit_is_an_error_not_a_restart(tmp_path: Path) -> None:
    (write_commit(tmp_path, 1) / "weights.safetensors").unlink()
    with pytest.raises(UserError, match="none of 1 checkpoints is valid"):
        checkpoint.newest_valid(tmp_path, lambda text: None)


def test_an_unfinished_commit_is_no_commit(tmp_path: Path) -> None:
    final = write_commit(tmp_path, 1)
    shutil.move(final, checkpoint.temporary_folder(tmp_path, 1))
    assert checkpoint.newest_valid(tmp_path, fail) is None
    checkpoint.remove_unfinished(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_commit_of_another_run_is_refused(tmp_path: Path) -> None:
    folder = write_commit(tmp_path, 1)
    with pytest.raises(UserError, match="another config or corpus"):
        checkpoint.load(folder, "other")
