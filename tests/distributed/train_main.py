"""One rank of a training run: `python -m tests.distributed.train_main SETTINGS`."""

import json
import os
import sys
from pathlib import Path

from cluster.errors import UserError
from cluster.process_group import configure_environment, join_process_group


def main() -> None:
    configure_environment()
    import torch
    import torch.distributed as dist

    from pretrain.config import PretrainConfig
    from pretrain.loop import train
    from pretrain.run import Run
    from tests.distributed.antics import Antics, perform

    torch.set_num_threads(1)
    given = json.loads(sys.argv[1])
    join_process_group("gloo")
    if given["antics"] is not None:
        perform(Antics(**given["antics"]), dist.get_rank())
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
        # The others may wait in a collective; a scheduler would end them.
        print(f"UserError: {error}", flush=True)
        os._exit(2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
