"""One rank of a training run, in a process that the fork server started."""

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from cluster.errors import UserError
from cluster.process_group import configure_environment, join_process_group
from pretrain.config import PretrainConfig
from pretrain.run import Run
from pretrain.trainer import Trainer
from pretrain.worker import train
from tests.distributed.injected_faults import Fault, inject


def main(given: dict[str, Any]) -> None:
    """Train as `given` says. Raises SystemExit with code 2 for a UserError: others may wait in a collective."""
    configure_environment("gloo")
    torch.set_num_threads(1)
    join_process_group("gloo")
    if given["fault"] is not None:
        inject(Fault(**given["fault"]), dist.get_rank())
    Trainer.LAG_STEPS = {"cpu": given.get("lag_steps", 0)}
    run = Run(
        PretrainConfig.model_validate(given["config"]),
        seed=3,
        prep_folder=Path(given["prep_folder"]),
        folder=Path(given["folder"]),
        accepted=frozenset(given["accepted"]),
    )
    try:
        train(run, torch.device("cpu"))
    except UserError as error:
        print(f"UserError: {error}", flush=True)
        sys.exit(2)
    dist.destroy_process_group()
