"""Training processes under Ray Train: start, restart, stop with a checkpoint, and errors in one line."""

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from cluster.errors import RetryableError, UnfinishedError, UserError, first_line
from cluster.local_ray import session_folder
from cluster.process_group import choose_backend, configure_environment, join_process_group, redirect_output
from cluster.reporter import Reporter
from cluster.storage import read_document, write_document
from pretrain.checkpoint.listing import COMMIT_NAME
from pretrain.files import PretrainFiles
from pretrain.health.stop import run_until_done_or_stopped

_MAX_START_FAILURES = 3
_MAX_SHOWN_CHARS = 200
"""The most characters shown of Ray's messages: when memory runs out, they list every process."""
PAUSE_S = 5.0
_START_TIMEOUT_S = 600
"""The time for one start: replacing a lost node takes long, and so does importing torch on a busy one (Ray's: 60)."""


@dataclass(frozen=True)
class Workers:
    """The processes that train in `folder`, for the command that starts them."""

    what: str
    """The name in messages, such as "pretraining"."""
    num_workers: int
    max_restarts: int
    folder: Path
    collective_timeout_s: int = 1800
    """How long a collective may wait for another worker; a dead worker is noticed at once."""

    def run(
        self, work: Callable[[dict[str, Any]], None], settings: dict[str, Any], reporter: Reporter
    ) -> None:
        """Run `work(settings)` in every worker, with `backend` and `log_folder` added to the settings.

        Returns when all have ended. Workers that failed too often are still restarted while each attempt adds a
        checkpoint or result. Needs an open Ray session. Raises UserError for a user's error in a worker,
        UnfinishedError for workers that fail too often, RetryableError when they hang, and KeyboardInterrupt when a
        stop was requested, even if the workers finished all the same: their results remain.
        """
        for name in (PretrainFiles.ERROR, PretrainFiles.HANG, PretrainFiles.STOP):
            (self.folder / name).unlink(missing_ok=True)
        backend = choose_backend(self.num_workers)
        logs = self.folder.parent / "logs"
        settings = {**settings, "backend": backend, "folder": self.folder, "log_folder": str(logs)}
        while (failure := self._run_attempt(work, settings, reporter)) is not None:
            reporter.warn(
                f"{self.what} workers failed ({_last_line(failure)}), see {logs}; they made progress and are restarted"
            )
            time.sleep(PAUSE_S)
        # A handle of Ray's that is dropped after its shutdown ends the process with another exit code.
        gc.collect()
        if (self.folder / PretrainFiles.STOP).exists():
            (self.folder / PretrainFiles.STOP).unlink()
            raise KeyboardInterrupt

    def _run_attempt(
        self, work: Callable[[dict[str, Any]], None], settings: dict[str, Any], reporter: Reporter
    ) -> Exception | None:
        """Run the workers once. Return the failure if they made progress before it; None if they did not fail."""
        from ray.exceptions import RayError
        from ray.train.v2.api.exceptions import TrainingFailedError

        before = _lasting_outputs(self.folder)
        try:
            run_until_done_or_stopped(
                self.make_trainer(work, settings, settings["backend"]).fit,
                self.folder / PretrainFiles.STOP,
                reporter,
            )
        except TrainingFailedError as error:
            known = any(
                (self.folder / name).exists()
                for name in (PretrainFiles.ERROR, PretrainFiles.HANG, PretrainFiles.STOP)
            )
            if known or not _lasting_outputs(self.folder) - before:
                self._explain(error, Path(settings["log_folder"]))
            failure: Exception = error
            return failure
        except RayError as error:
            raise RetryableError(
                f"Ray lost a process of its own ({first_line(error)}); run the same command again"
            ) from error
        return None

    def _explain(self, error: Exception, logs: Path) -> NoReturn:
        if (self.folder / PretrainFiles.ERROR).exists():
            raise UserError(read_document(self.folder / PretrainFiles.ERROR)["message"]) from error
        if (self.folder / PretrainFiles.HANG).exists():
            raise RetryableError(
                f"{read_document(self.folder / PretrainFiles.HANG)['text']}; run the same command again"
            ) from error
        raise UnfinishedError(
            f"{self.what} workers failed ({_last_line(error)}): see {logs}, then run the same command again to resume "
            "from the last checkpoint"
        ) from error

    def make_trainer(
        self, work: Callable[[dict[str, Any]], None], settings: dict[str, Any], backend: str
    ) -> Any:
        import ray.train
        from ray.train.torch import TorchConfig, TorchTrainer

        from cluster.local_group import LocalTorchConfig, LocalTorchTrainer

        is_local = session_folder() is not None
        trainer, torch_config = (
            (LocalTorchTrainer, LocalTorchConfig) if is_local else (TorchTrainer, TorchConfig)
        )
        os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", str(_START_TIMEOUT_S))
        return trainer(
            work,
            train_loop_config=settings,
            torch_config=torch_config(backend=backend, timeout_s=self.collective_timeout_s),
            scaling_config=ray.train.ScalingConfig(num_workers=self.num_workers, use_gpu=backend == "nccl"),
            run_config=ray.train.RunConfig(
                name=".ray-train",
                storage_path=str(self.folder),
                failure_config=ray.train.FailureConfig(
                    max_failures=self.max_restarts,
                    # Ray counts failed starts of workers here, and by default retries for ever without a message.
                    controller_failure_limit=_MAX_START_FAILURES,
                ),
            ),
        )


@contextmanager
def joined(settings: dict[str, Any], name: str) -> Iterator[Any]:
    """Join the process group that Ray set up, with output to `log_folder`/NAME-worker-RANK.log; for `work` in a worker.

    Yields the device. A UserError in the block is written for the process that started the workers.
    """
    import ray.train
    from ray.train.torch import get_device

    folder: Path = settings["folder"]
    configure_environment(settings["backend"])
    rank = ray.train.get_context().get_world_rank()
    with redirect_output(Path(settings["log_folder"]) / f"{name}-worker-{rank}.log"):
        import torch

        if (folder / PretrainFiles.ERROR).exists():
            raise RuntimeError("an earlier attempt failed on the user's side; not trying again")
        try:
            join_process_group(settings["backend"])
            # A worker may see GPUs that the run does not use.
            yield get_device() if settings["backend"] == "nccl" else torch.device("cpu")
        except UserError as error:
            write_document(folder / PretrainFiles.ERROR, {"message": str(error)})
            raise


def is_first_of_node() -> bool:
    """Return whether this worker is the first on its machine."""
    import ray.train

    return bool(ray.train.get_context().get_local_rank() == 0)


def _lasting_outputs(folder: Path) -> set[Path]:
    """Return the files that show lasting progress: those of checkpoints and results."""
    return {path for name in (COMMIT_NAME, PretrainFiles.RESULT) for path in folder.rglob(name)}


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    last = lines[-1] if lines else type(error).__name__
    return last if len(last) <= _MAX_SHOWN_CHARS else last[: _MAX_SHOWN_CHARS - 3] + "..."
