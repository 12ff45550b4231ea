"""One rank that looks for the newest valid checkpoint with the others, in a process that the fork server started."""

import json
from pathlib import Path
from typing import Any

import torch.distributed as dist

from cluster.errors import UserError
from cluster.process_group import configure_environment, join_process_group
from cluster.storage import sha256_file
from pretrain.checkpoint import verify
from pretrain.checkpoint.finding import last_valid_before_of_all, newest_valid_of_all
from pretrain.checkpoint.verify import Damaged


def main(given: dict[str, Any]) -> None:
    """Look in each of the folders; write what was found, reported and hashed to RANK.json.

    `blind` maps a rank to a file name that it cannot read, as when its node has lost a mount.
    """
    configure_environment("gloo")
    join_process_group("gloo")
    rank = dist.get_rank()
    hashed: list[str] = []

    def counted(path: Path) -> str:
        hashed.append(path.name)
        if given["blind"].get(str(rank)) == path.name:
            raise OSError("stale file handle")
        return sha256_file(path)

    setattr(verify, "sha256_file", counted)  # noqa: B010  # mypy: it is not exported from there
    looked = []
    for folder in given["folders"]:
        hashed.clear()
        damaged: list[Damaged] = []
        looked.append({"found": _newest(Path(folder), damaged), "damaged": [str(one) for one in damaged]})
        looked[-1]["hashed"] = list(hashed)
        looked[-1]["before_2"] = str(last_valid_before_of_all(Path(folder), 2))
    (Path(given["out"]) / f"{rank}.json").write_text(json.dumps(looked))
    dist.destroy_process_group()


def _newest(folder: Path, damaged: list[Damaged]) -> str:
    try:
        return str(newest_valid_of_all(folder, damaged.append))
    except UserError as error:
        return f"UserError: {error}"
