"""One rank that tries cases one after the other, in a process that the fork server started."""

import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from cluster.process_group import configure_environment, join_process_group
from tests.distributed.engine_cases import Case, try_case


def main(given: dict[str, Any]) -> None:
    """Leaves `seen.json` in the given folder."""
    configure_environment("gloo")
    torch.set_num_threads(1)
    join_process_group("gloo")
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    reported, before = [], None
    for case in given["cases"]:
        seen, before = try_case(Case(**case), before)
        reported.append(asdict(seen))
    if dist.get_rank() == 0:
        (Path(given["folder"]) / "seen.json").write_text(json.dumps(reported))
    dist.destroy_process_group()
