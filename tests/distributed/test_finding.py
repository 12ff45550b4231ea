"""The workers verify a checkpoint together: every file hashed once, and the decision of a single reader in all."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from cluster.errors import UserError
from pretrain.checkpoint.finding import shares
from pretrain.checkpoint.listing import FileEntry, read_listing
from pretrain.checkpoint.verify import Damaged, last_valid_before, newest_valid
from tests.checkpoints import write_checkpoint
from tests.distributed.fork_server import start_ranks

_WORLD_SIZE = 3


def looked(tmp_path: Path, folders: list[Path], blind: dict[int, str] | None = None) -> list[Any]:
    """What the ranks found in `folders`: for each rank a list with an entry for each folder."""
    out = tmp_path / "out"
    out.mkdir()
    settings = {"folders": [str(folder) for folder in folders], "out": str(out), "blind": blind or {}}
    workers = start_ranks("finding_main", settings, _WORLD_SIZE, str(tmp_path / "{}.log"))
    for rank, worker in enumerate(workers):
        assert worker.wait(60) == 0, (tmp_path / f"{rank}.log").read_text()
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(_WORLD_SIZE)]


def alone(folder: Path) -> tuple[str, list[str], str]:
    """What a single process finds in a folder and reports."""
    damaged: list[Damaged] = []
    try:
        found = str(newest_valid(folder, damaged.append))
    except UserError as error:
        found = f"UserError: {error}"
    return found, [str(one) for one in damaged], str(last_valid_before(folder, 2))


def damaged_copies(tmp_path: Path) -> list[Path]:
    """Folders with checkpoints of steps 1 and 2: whole, each file of step 2 damaged or missing, all damaged, none."""
    whole = tmp_path / "whole"
    for step in (1, 2):
        write_checkpoint(whole, step, world_size=_WORLD_SIZE, num_lanes=3)
    folders = [whole, tmp_path / "none"]
    (tmp_path / "none").mkdir()
    for path in sorted((whole / "step-00000002").iterdir()):
        for damage in ("flip", "remove"):
            folders.append(Path(shutil.copytree(whole, tmp_path / f"{damage}-{path.name}")))
            name = folders[-1] / "step-00000002" / path.name
            name.unlink() if damage == "remove" else name.write_bytes(path.read_bytes()[::-1])
    folders.append(Path(shutil.copytree(whole, tmp_path / "all")))
    for path in folders[-1].glob("step-*/weights-*"):
        path.write_bytes(b"")
    return folders


def test_all_ranks_find_what_one_process_alone_finds(tmp_path: Path) -> None:
    folders = damaged_copies(tmp_path)
    assert len(folders) > 20
    of_ranks = looked(tmp_path, folders)
    for number, folder in enumerate(folders):
        found, damaged, before = alone(folder)
        seen = [of_rank[number] for of_rank in of_ranks]
        assert [one["found"] for one in seen] == [found] * _WORLD_SIZE, folder
        assert [one["before_2"] for one in seen] == [before] * _WORLD_SIZE, folder
        assert [one["damaged"] for one in seen] == [damaged, [], []], folder
    assert alone(folders[2])[0] == str(folders[2] / "step-00000001"), (
        "a damaged one leads to the one before it"
    )
    hashed = [of_rank[0]["hashed"] for of_rank in of_ranks]
    assert Counter(sum(hashed, [])) == Counter(list(read_listing(folders[0] / "step-00000002").files))
    assert all(len(own) > 1 for own in hashed)


def test_a_rank_that_cannot_read_a_file_does_not_make_all_go_back(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    for step in (1, 2):
        write_checkpoint(whole, step, world_size=_WORLD_SIZE, num_lanes=3)
    divided = shares(read_listing(whole / "step-00000002").files, _WORLD_SIZE)
    blind = {rank: max(divided[rank]) for rank in (1, 2)}
    of_ranks = looked(tmp_path, [whole], blind)
    for rank in (1, 2):
        assert blind[rank] in of_ranks[rank][0]["hashed"], "it was asked for the file that it cannot read"
    assert [of_rank[0]["found"] for of_rank in of_ranks] == [str(whole / "step-00000002")] * _WORLD_SIZE


def test_shares_are_as_even_as_the_files_allow() -> None:
    files = {f"weights-{rank:05d}": FileEntry(1_000_000 + rank, "") for rank in range(1024)}
    files |= {f"optimizer-{rank:05d}": FileEntry(2_000_000 + rank, "") for rank in range(1024)}
    for num_workers in (1, 7, 128, 1024):
        divided = shares(files, num_workers)
        assert sorted(name for own in divided for name in own) == sorted(files)
        loads = [sum(entry.size_bytes for entry in own.values()) for own in divided]
        assert max(loads) - min(loads) <= 2_001_023
        assert max(loads) <= sum(loads) / num_workers + 2_001_023
