"""The newest valid checkpoint is used; damage is reported and skipped, never taken for a fresh start."""

import shutil
from pathlib import Path

import pytest

from cluster.errors import UserError
from cluster.storage import fingerprint, write_json
from pretrain.checkpoint.listing import COMMIT_NAME, FORMAT, Listing, read_listing
from pretrain.checkpoint.reading import CheckpointTensors
from pretrain.checkpoint.verify import Damaged, find_damage, newest_valid
from tests.checkpoints import write_checkpoint


def fail(damaged: Damaged) -> None:
    raise AssertionError(f"nothing is damaged, but: {damaged}")


FILES = (
    "weights-00001.safetensors",
    "optimizer-00000.safetensors",
    "memory-00002.safetensors",
    "state.json",
    "config.json",
    "model.json",
    "tokenizer.json",
    "COMMIT.json",
)


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkpoints = tmp_path_factory.mktemp("checkpoints")
    for step in (1, 2):
        write_checkpoint(checkpoints, step, world_size=2)
    return checkpoints


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["flip a bit", "cut short", "remove"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    two_checkpoints: Path, tmp_path: Path, name: str, damage: str
) -> None:
    checkpoints = tmp_path / "checkpoints"
    shutil.copytree(two_checkpoints, checkpoints)
    path = checkpoints / "step-00000002" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if damage == "flip a bit":
        path.write_bytes(data)
    elif damage == "cut short":
        path.write_bytes(data[: len(data) // 2])
    else:
        path.unlink()
    reported: list[Damaged] = []
    assert newest_valid(checkpoints, reported.append) == checkpoints / "step-00000001"
    assert [damaged.checkpoint for damaged in reported] == ["step-00000002"]
    assert name in reported[0].problem
    assert str(reported[0]).endswith("; trying the one before it")


def test_a_flipped_bit_anywhere_in_the_list_is_found(two_checkpoints: Path, tmp_path: Path) -> None:
    folder = tmp_path / "step-00000002"
    shutil.copytree(two_checkpoints / folder.name, folder)
    whole, listing = (folder / COMMIT_NAME).read_bytes(), read_listing(folder)
    format_at = whole.index(b'"format"')
    flips = [(index, index % 8) for index in range(len(whole))]
    flips += [(index, bit) for index in range(format_at, format_at + 12) for bit in range(8)]
    for index, bit in flips:
        with (folder / COMMIT_NAME).open("r+b") as file:
            file.write(whole[:index] + bytes([whole[index] ^ 1 << bit]) + whole[index + 1 :])
        try:
            found: Listing | str = read_listing(folder)
        except UserError as error:
            found = str(error)
        assert found in (listing, "COMMIT.json is missing or damaged"), (index, bit)


def test_no_valid_checkpoint_is_an_error_not_a_restart(two_checkpoints: Path, tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    shutil.copytree(two_checkpoints, checkpoints)
    for path in checkpoints.glob("*/weights-00000.safetensors"):
        path.unlink()
    with pytest.raises(UserError, match=r"none of 2 checkpoints is valid .*weights-00000.*missing"):
        newest_valid(checkpoints, lambda damaged: None)


def test_a_run_without_checkpoints_starts_afresh(tmp_path: Path) -> None:
    assert newest_valid(tmp_path / "nothing", fail) is None
    (tmp_path / ".step-00000001.token.tmp").mkdir()
    assert newest_valid(tmp_path, fail) is None


def test_a_checkpoint_under_another_name_is_damaged(two_checkpoints: Path, tmp_path: Path) -> None:
    shutil.copytree(two_checkpoints / "step-00000001", tmp_path / "step-00000003")
    assert find_damage(tmp_path / "step-00000003") == "COMMIT.json is missing or damaged"


def test_a_checkpoint_of_a_newer_permcode_is_refused_not_skipped(
    two_checkpoints: Path, tmp_path: Path
) -> None:
    shutil.copytree(two_checkpoints, tmp_path / "checkpoints")
    newest = tmp_path / "checkpoints" / "step-00000002"
    stored = {"format": FORMAT + 1, "step": 2, "files": {}}
    write_json(newest / COMMIT_NAME, stored | {"checksum": fingerprint(stored)})
    for use in (lambda: newest_valid(newest.parent, fail), lambda: CheckpointTensors(newest)):
        with pytest.raises(UserError, match=f"made by a newer permcode .format {FORMAT + 1}"):
            use()
