"""The newest valid commit is used; damage is named and passed over, never taken for a fresh start."""

import os
import shutil
from pathlib import Path

import pytest
from safetensors.torch import save_file

from cluster.errors import UserError
from cluster.storage import read_document, sha256_file, write_document, write_json
from pretrain.checkpoint.files import FileEntry
from pretrain.checkpoint.finding import (
    Damaged,
    best,
    discard_newer,
    newest_valid,
    problem_of,
    remove_unfinished,
)
from pretrain.checkpoint.listing import COMMIT_NAME, FORMAT, Listing, read_listing
from pretrain.checkpoint.publishing import temporary_folder
from pretrain.checkpoint.reading import load_weights, open_commit
from tests.commits import weights_of, write_commit


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
def two_commits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkpoints = tmp_path_factory.mktemp("checkpoints")
    for step in (1, 2):
        write_commit(checkpoints, step, world_size=2)
    return checkpoints


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["flip a bit", "cut short", "remove"])
def test_a_damaged_commit_is_named_and_the_one_before_it_used(
    two_commits: Path, tmp_path: Path, name: str, damage: str
) -> None:
    checkpoints = tmp_path / "checkpoints"
    shutil.copytree(two_commits, checkpoints)
    path = checkpoints / "step-00000002" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if damage == "flip a bit":
        path.write_bytes(data)
    elif damage == "cut short":
        path.write_bytes(data[: len(data) // 2])
    else:
        path.unlink()
    told: list[Damaged] = []
    assert newest_valid(checkpoints, told.append) == checkpoints / "step-00000001"
    assert [damaged.commit for damaged in told] == ["step-00000002"]
    assert name in told[0].problem
    assert str(told[0]).endswith("; trying the one before it")


def test_a_flipped_bit_anywhere_in_the_list_is_found(two_commits: Path, tmp_path: Path) -> None:
    folder = tmp_path / "step-00000002"
    shutil.copytree(two_commits / folder.name, folder)
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


def test_no_valid_commit_is_an_error_not_a_restart(two_commits: Path, tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    shutil.copytree(two_commits, checkpoints)
    for path in checkpoints.glob("*/weights-00000.safetensors"):
        path.unlink()
    with pytest.raises(UserError, match=r"none of 2 checkpoints is valid .*weights-00000.*missing"):
        newest_valid(checkpoints, lambda damaged: None)


def test_a_run_without_commits_starts_afresh(tmp_path: Path) -> None:
    assert newest_valid(tmp_path / "nothing", fail) is None
    (tmp_path / ".step-00000001.token.tmp").mkdir()
    assert newest_valid(tmp_path, fail) is None


def test_a_commit_under_another_name_is_damaged(two_commits: Path, tmp_path: Path) -> None:
    shutil.copytree(two_commits / "step-00000001", tmp_path / "step-00000003")
    assert problem_of(tmp_path / "step-00000003") == "COMMIT.json is missing or damaged"


def test_a_commit_of_a_newer_permcode_is_refused_not_passed_over(two_commits: Path, tmp_path: Path) -> None:
    shutil.copytree(two_commits, tmp_path / "checkpoints")
    newest = tmp_path / "checkpoints" / "step-00000002"
    Listing(FORMAT + 1, 2, {}).write(newest)
    for use in (lambda: newest_valid(newest.parent, fail), lambda: open_commit(newest)):
        with pytest.raises(UserError, match=f"made by a newer permcode .format {FORMAT + 1}"):
            use()


def test_the_weights_of_format_2_can_be_used_but_not_gone_on_from(tmp_path: Path) -> None:
    folder, weights = tmp_path / "step-00000007", weights_of(7)
    folder.mkdir()
    save_file(weights, folder / "weights.safetensors")
    path = folder / "weights.safetensors"
    entry = FileEntry(path.stat().st_size, sha256_file(path))
    stored = {"format": 2, "step": 7, "files": {path.name: entry.to_json()}}
    write_json(folder / COMMIT_NAME, stored)
    assert newest_valid(tmp_path, fail) == folder
    assert load_weights(folder).keys() == weights.keys()
    with pytest.raises(UserError, match="older permcode .format 2.*training cannot go on"):
        open_commit(folder)


def test_commits_after_a_step_can_be_discarded(two_commits: Path, tmp_path: Path) -> None:
    shutil.copytree(two_commits, tmp_path / "checkpoints")
    assert discard_newer(tmp_path / "checkpoints", 1) == ["step-00000002"]
    assert os.listdir(tmp_path / "checkpoints") == ["step-00000001"]
    assert discard_newer(tmp_path / "checkpoints", 1) == []


def test_what_kills_left_is_cleared_and_nothing_else(two_commits: Path, tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    shutil.copytree(two_commits, checkpoints)
    unfinished = temporary_folder(checkpoints, 3, "attempt")
    unfinished.mkdir()
    (unfinished / "weights-00000.safetensors").write_bytes(b"half")
    (checkpoints / ".step-00000001.old.tmp").mkdir()
    remove_unfinished(checkpoints)
    assert sorted(os.listdir(checkpoints)) == ["step-00000001", "step-00000002"]
    remove_unfinished(tmp_path / "nothing")


def test_the_best_commit_has_the_fewest_bits_per_byte(tmp_path: Path) -> None:
    assert best(tmp_path) is None
    for step, bits in enumerate([None, 3.0, 2.5, float("nan"), 2.5, 2.75], start=1):
        folder = write_commit(tmp_path, step)
        if bits is not None:
            state = read_document(folder / "state.json") | {"validation_bits_per_byte": bits}
            write_document(folder / "state.json", state)
    assert best(tmp_path) == tmp_path / "step-00000005"
