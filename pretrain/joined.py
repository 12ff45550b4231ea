"""Joins a training process to the others of its group; for functions that Ray Train runs in every worker."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from cluster import structured_log
from cluster.errors import RetryableError, UserError
from cluster.lease import Lease, LeaseGuard
from cluster.process_group import configure_environment, join_process_group, redirect_output
from cluster.storage import write_document
from pretrain.files import PretrainFiles


@contextmanager
def joined(settings: dict[str, Any], name: str) -> Iterator[Any]:
    """Join the process group that Ray set up; for the function that runs in every worker.

    `settings` are what `pretrain.workers` and `pretrain.attempt` give it. Output goes to
    `log_folder`/NAME-worker-RANK.log. Yields the device. A UserError in the block is written for the process that
    started the workers. The process ends when its attempt's lease does.
    """
    import ray.train
    from ray.train.torch import get_device

    folder: Path = settings["folder"]
    lease: Lease = settings["lease"]
    if not settings["marker"].exists():
        node = ray.util.get_node_ip_address()
        raise RuntimeError(f"StorageLost: node {node} does not see the run's folder {folder}: mount it there")
    configure_environment(settings["backend"])
    rank = ray.train.get_context().get_world_rank()
    with (
        redirect_output(Path(settings["log_folder"]) / f"{name}{settings['group_suffix']}-worker-{rank}.log"),
        structured_log.logged_to(
            structured_log.worker_log(settings["events"], rank), replace(settings["place"], rank=rank)
        ),
        LeaseGuard(lease),
    ):
        import torch

        structured_log.event(f"worker {rank} of {ray.train.get_context().get_world_size()} begins")
        if is_first_of_node():
            (folder / PretrainFiles.NODES).mkdir(exist_ok=True)
            (folder / PretrainFiles.NODES / ray.get_runtime_context().get_node_id()).touch()
        try:
            join_process_group(settings["backend"])
            # A worker may see GPUs that the run does not use.
            yield get_device() if settings["backend"] == "nccl" else torch.device("cpu")
            structured_log.event(f"worker {rank} ends")
        except (UserError, RetryableError) as error:
            kind = {"kind": error.kind} if isinstance(error, RetryableError) else {}
            write_document(folder / PretrainFiles.ERROR, {"message": str(error), **kind})
            raise


def is_first_of_node() -> bool:
    """Return whether this worker is the first on its machine."""
    import ray.train

    return bool(ray.train.get_context().get_local_rank() == 0)
