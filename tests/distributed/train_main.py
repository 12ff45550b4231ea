"""One rank of a training run: `python -m tests.distributed.train_main SETTINGS`."""

import json
import sys
from pathlib import Path

from cluster.process_group import configure_environment, join_process_group


def main() -> None:
    configure_environment()
    import torch
    import torch.distributed as dist

    from pretrain.config import PretrainConfig
    from pretrain.loop import train
    from pretrain.run import Run

    torch.set_num_threads(1)
    config, prep_folder, folder = json.loads(sys.argv[1])
    join_process_group("gloo")
    run = Run(
        PretrainConfig.model_validate(config), seed=3, prep_folder=Path(prep_folder), folder=Path(folder)
    )
    train(run, torch.device("cpu"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
