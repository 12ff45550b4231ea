"""One rank that gets the results of the first one, in a process that the fork server started."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist

from cluster.errors import UserError
from cluster.process_group import configure_environment, join_process_group
from pretrain.agreement import agreed, agreed_in_parts


def main(given: dict[str, Any]) -> None:
    """Write what every call returned to RANK.json."""
    configure_environment("gloo")
    join_process_group("gloo")
    rank = dist.get_rank()

    def refuse() -> None:
        raise UserError(f"rank {rank} cannot use it")

    reported: list[Any] = [agreed(lambda: rank), agreed(lambda: None), agreed(lambda: Path("found"))]
    try:
        agreed(refuse)
    except UserError as error:
        reported.append(error)
    reported.append(agreed(lambda: "goes on"))
    reported += _in_parts()
    (Path(given["folder"]) / f"{rank}.json").write_text(json.dumps([str(one) for one in reported]))
    dist.destroy_process_group()


def _in_parts() -> list[Any]:
    """What is found in three parts and refused after a fourth, and how many parts this rank has heard of by then."""
    ticks: list[None] = []

    def look(part_done: Callable[[], None], num_parts: int) -> int:
        for _ in range(num_parts):
            time.sleep(0.15)
            part_done()
        if num_parts == 1:
            raise UserError("found nothing")
        return num_parts

    reported: list[Any] = [agreed_in_parts(lambda part_done: look(part_done, 3), lambda: ticks.append(None))]
    reported.append(len(ticks))
    try:
        agreed_in_parts(lambda part_done: look(part_done, 1), lambda: ticks.append(None))
    except UserError as error:
        reported.append(error)
    return [*reported, len(ticks)]
