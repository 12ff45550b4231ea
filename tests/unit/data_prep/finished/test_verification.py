"""A changed byte anywhere in a prep folder is found and its file named."""

import shutil
from pathlib import Path

import pytest

from cluster.errors import UserError
from data_prep.finished.verification import verify_prepared


def test_an_undamaged_folder_is_verified(prep: Path) -> None:
    reported: list[int] = []
    verified = verify_prepared(prep, reported.append)
    tars = list((prep / "shards").glob("*.tar"))
    assert (verified.num_shards, verified.num_blocks, verified.num_members) == (len(tars), 9, 27)
    assert verified.num_bytes == sum(reported) == sum(tar.stat().st_size for tar in tars)


@pytest.mark.parametrize(
    "name",
    [
        "manifest.json",
        "ledger.parquet",
        "tokenizer.json",
        "shards/train-00001.tar",
        "shards/train-00001.index.json",
        "shards/test-00001.tar",
    ],
)
def test_a_flipped_bit_anywhere_is_found_and_its_file_named(prep: Path, name: str) -> None:
    path = prep / name
    original = path.read_bytes()
    for position in range(0, len(original), max(1, len(original) // 23)):
        damaged = bytearray(original)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=name.rpartition("/")[2]):
            verify_prepared(prep)
    path.write_bytes(original)
    verify_prepared(prep)


@pytest.mark.parametrize("name", ["ledger.parquet", "tokenizer.json", "shards/train-00001.tar"])
def test_a_missing_or_short_file_is_named(prep: Path, name: str) -> None:
    path = prep / name
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match=path.name):
        verify_prepared(prep)
    path.unlink()
    with pytest.raises(UserError, match=path.name):
        verify_prepared(prep)


def test_the_member_that_is_damaged_is_named(prep: Path) -> None:
    tar = prep / "shards" / "train-00000.tar"
    data = bytearray(tar.read_bytes())
    data[data.index(b'{"documents"')] ^= 1
    tar.write_bytes(data)
    with pytest.raises(UserError, match=r"in block train-00000-00000 \(meta\.json\)"):
        verify_prepared(prep)


def test_swapped_tars_are_found(prep: Path) -> None:
    shards = prep / "shards"
    shutil.copy(shards / "train-00000.tar", shards / "train-00001.tar")
    with pytest.raises(UserError, match="train-00001.tar is damaged in block train-00001-00000"):
        verify_prepared(prep)
