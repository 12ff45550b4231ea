"""What Ray Train runs in every pretraining worker."""

from contextlib import nullcontext
from typing import Any

from cluster.system_metrics import sampled_system
from pretrain.loop import train
from pretrain.ray_workers import is_first_of_node, joined
from pretrain.run import Run


def work(settings: dict[str, Any]) -> None:
    """Join the process group Ray set up, train, leave it in order."""
    run: Run = settings["run"]
    with joined(settings, "pretrain") as device:
        with sampled_system(run.folder) if is_first_of_node() else nullcontext():
            train(run, device)
