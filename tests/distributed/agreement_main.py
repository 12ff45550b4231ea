"""One rank that is told what the first one finds, in a process that the nursery forked."""

import json
from pathlib import Path
from typing import Any

import torch.distributed as dist

from cluster.errors import UserError
from cluster.process_group import configure_environment, join_process_group
from pretrain.agreement import agreed


def main(given: dict[str, Any]) -> None:
    """Leaves what it was told in RANK.json."""
    configure_environment("gloo")
    join_process_group("gloo")
    rank = dist.get_rank()

    def refuse() -> None:
        raise UserError(f"rank {rank} cannot use it")

    told: list[Any] = [agreed(lambda: rank), agreed(lambda: None), agreed(lambda: Path("found"))]
    try:
        agreed(refuse)
    except UserError as error:
        told.append(error)
    told.append(agreed(lambda: "goes on"))
    (Path(given["folder"]) / f"{rank}.json").write_text(json.dumps([str(one) for one in told]))
    dist.destroy_process_group()
