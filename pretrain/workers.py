"""What the command says of the processes that it lets train: how many, where, with what, and Ray Train's trainer."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.local_ray import session_folder
from cluster.nodes import node_selector
from cluster.resources import ResourcesConfig, uses_gpu
from cluster.storage import read_document, write_document
from pretrain.checkpoint.listing import COMMIT_NAME
from pretrain.files import PretrainFiles

_MAX_START_FAILURES = 3
_START_TIMEOUT_S = 600
"""The time for one start: replacing a lost node takes long, and so does importing torch on a busy one (Ray's: 60)."""


@dataclass(frozen=True)
class Workers:
    """A group of processes that train in `folder`, for the command that starts them."""

    what: str
    """The name in messages, such as "pretraining"."""
    sizes: tuple[int, ...]
    """The possible numbers of workers, the wanted one first; fewer are used while the cluster lacks room."""
    max_restarts: int
    """How often workers are restarted in a row without a new checkpoint or result."""
    folder: Path
    """The stage's folder."""
    resources: ResourcesConfig = field(default_factory=ResourcesConfig)
    collective_timeout_s: int = 1800
    """How long a collective may wait for another worker; a dead worker is noticed at once."""
    with_less_memory: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda settings: None
    """Returns settings that need less memory, None if there are none; called when memory ran out twice in a row."""
    group: int = 1
    """The number of the group, where several work side by side in the stage's folder."""

    @property
    def own_folder(self) -> Path:
        """Where the group's lease is, its requests to stop and its errors: the stage's folder for the first group."""
        return self.folder if self.group == 1 else self.folder / PretrainFiles.GROUPS / str(self.group)

    @property
    def logs(self) -> Path:
        """The folder for the output of the workers."""
        return self.folder.parent / "logs"

    def remove_requests(self) -> None:
        """Remove what an earlier command left in the group's folder: requests to stop, and errors.

        The report of a hang stays: the next attempt's first worker takes it into the journal.
        """
        for name in (PretrainFiles.ERROR, PretrainFiles.STOP, PretrainFiles.HANDOVER):
            (self.own_folder / name).unlink(missing_ok=True)

    def settings(self) -> dict[str, Any]:
        """Return what all workers of the stage get beside their work; needs an open Ray session."""
        return {"backend": "nccl" if self._chooses_gpu() else "gloo", "log_folder": str(self.logs)}

    def _chooses_gpu(self) -> bool:
        """Return whether the workers use GPUs; once chosen that stays, unless the config names another device."""
        path = self.folder / PretrainFiles.DEVICE
        if self.resources.device == "auto" and path.exists():
            return bool(read_document(path)["gpu"])
        chosen = uses_gpu(self.resources)
        write_document(path, {"gpu": chosen})
        return chosen

    def make_trainer(
        self,
        work: Callable[[dict[str, Any]], None],
        settings: dict[str, Any],
        num_workers: int,
        nodes: frozenset[str] = frozenset(),
    ) -> Any:
        """Return the trainer of one attempt, whose workers run on `nodes` (Ray's ids); on any if there are none."""
        import ray.train
        from ray.train.torch import TorchTrainer

        from cluster.worker_group import ClusterTorchConfig, LocalTorchConfig, LocalTorchTrainer

        is_local = session_folder() is not None
        trainer, torch_config = (
            (LocalTorchTrainer, LocalTorchConfig) if is_local else (TorchTrainer, ClusterTorchConfig)
        )
        os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", str(_START_TIMEOUT_S))
        on_gpu = settings["backend"] == "nccl"
        return trainer(
            work,
            train_loop_config=settings,
            torch_config=torch_config(backend=settings["backend"], timeout_s=self.collective_timeout_s),
            scaling_config=ray.train.ScalingConfig(
                num_workers=num_workers,
                use_gpu=on_gpu,
                resources_per_worker=self.resources.of_worker(on_gpu),
                placement_strategy=self.resources.placement.upper(),
                label_selector=node_selector(nodes, is_in=True) if nodes else None,
            ),
            run_config=ray.train.RunConfig(
                name=".ray-train",
                storage_path=str(self.own_folder),
                failure_config=ray.train.FailureConfig(
                    # Workers are restarted by the command, where it can be said why and with how many.
                    max_failures=0,
                    max_preemption_failures=0,
                    # Ray counts failed starts of workers here, and by default retries for ever without a message.
                    controller_failure_limit=_MAX_START_FAILURES,
                ),
            ),
        )


def lasting_outputs(folder: Path) -> set[Path]:
    """Return the files that show lasting progress: those of checkpoints and results."""
    return {path for name in (COMMIT_NAME, PretrainFiles.RESULT) for path in folder.rglob(name)}
