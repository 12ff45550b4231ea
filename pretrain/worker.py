"""What Ray Train runs in every pretraining worker."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from cluster.errors import UserError
from cluster.process_group import chatter_to, configure_environment, join_process_group
from cluster.storage import write_json
from cluster.system_metrics import sampled_system
from pretrain.loop import train
from pretrain.run import Run

ERROR_NAME = "error.json"
"""A user's error in a worker, for the process that started it."""


def work(settings: dict[str, Any]) -> None:
    """Join the process group Ray set up, train, leave it in order."""
    import ray.train
    from ray.train.torch import get_device

    run: Run = settings["run"]
    context = ray.train.get_context()
    rank, is_first_of_node = context.get_world_rank(), context.get_local_rank() == 0
    configure_environment(settings["backend"])
    with chatter_to(Path(settings["log_folder"]) / f"pretrain-worker-{rank}.log"):
        import torch

        if (run.folder / ERROR_NAME).exists():
            raise RuntimeError("an earlier attempt failed on the user's side; not trying again")
        try:
            join_process_group(settings["backend"])
            # A worker may see GPUs that the run does not use.
            device = get_device() if settings["backend"] == "nccl" else torch.device("cpu")
            with sampled_system(run.folder) if is_first_of_node else nullcontext():
                train(run, device)
        except UserError as error:
            write_json(run.folder / ERROR_NAME, {"message": str(error)})
            raise
