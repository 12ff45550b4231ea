"""Training processes under Ray Train: start, restart, stop with a checkpoint, and errors in one line."""

import gc
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cluster import metrics_export, run_state, structured_log
from cluster.errors import FailureKind, RetryableError, UserError, first_line
from cluster.lease import HeldLease, Lease, LeaseGuard
from cluster.local_ray import session_folder
from cluster.nodes import NodeWatch, shared_marker, watched_nodes
from cluster.process_group import configure_environment, join_process_group, redirect_output
from cluster.reporter import Reporter
from cluster.resources import ResourcesConfig, uses_gpu, wait_for_workers
from cluster.storage import read_document, write_document
from pretrain.checkpoint.listing import COMMIT_NAME
from pretrain.files import PretrainFiles
from pretrain.health.stop import run_until_done_or_stopped

_MAX_START_FAILURES = 3
_MAX_SHOWN_CHARS = 300
"""The most characters shown of Ray's messages: when memory runs out, they list every process."""
PAUSE_S = 5.0
_START_TIMEOUT_S = 600
"""The time for one start: replacing a lost node takes long, and so does importing torch on a busy one (Ray's: 60)."""
_GROW_EVERY_S = 30.0
"""How often it is tried whether there is room for more workers."""
_ABANDON_AFTER_S = 90.0
"""How long Ray Train may take to notice that the workers of an ended attempt are gone."""


@dataclass(frozen=True)
class Workers:
    """The processes that train in `folder`, for the command that starts them."""

    what: str
    """The name in messages, such as "pretraining"."""
    sizes: tuple[int, ...]
    """The possible numbers of workers, the wanted one first; fewer are used while the cluster lacks room."""
    max_restarts: int
    """How often workers are restarted in a row without a new checkpoint or result."""
    folder: Path
    resources: ResourcesConfig = field(default_factory=ResourcesConfig)
    collective_timeout_s: int = 1800
    """How long a collective may wait for another worker; a dead worker is noticed at once."""
    with_less_memory: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda settings: None
    """Returns settings that need less memory, None if there are none; called when memory ran out twice in a row."""

    def run(
        self, work: Callable[[dict[str, Any]], None], settings: dict[str, Any], reporter: Reporter
    ) -> None:
        """Run `work(settings)` in every worker until it has ended in all; needs an open Ray session.

        The settings get `backend`, `folder`, `log_folder`, `lease`, `place` and `marker`. Workers that fail, lose
        their node or hand over are started again. Raises UserError for a user's error in a worker, RetryableError when
        workers hang or are lost too often or the cluster has no room for them, RuntimeError for an unexpected error in
        a worker, and KeyboardInterrupt when a stop was requested, even if the workers finished all the same: their
        results remain.
        """
        logs = self.folder.parent / "logs"
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in (PretrainFiles.ERROR, PretrainFiles.HANG, PretrainFiles.STOP, PretrainFiles.HANDOVER):
            (self.folder / name).unlink(missing_ok=True)
        backend = "nccl" if self._chooses_gpu() else "gloo"
        num_failures = num_out_of_memory = 0
        with shared_marker(self.folder) as marker, watched_nodes(reporter.warn) as nodes:
            settings = {**settings, "backend": backend, "folder": self.folder, "log_folder": str(logs)}
            settings["marker"] = marker
            while True:
                before = lasting_outputs(self.folder)
                failure = _Attempt(self, nodes, reporter).run(work, settings)
                if failure is None:
                    if not self._is_handed_over():
                        break
                    reporter.line(f"{self.what}: the workers ended with a checkpoint and are started again")
                    continue
                num_failures = 0 if lasting_outputs(self.folder) - before else num_failures + 1
                is_out_of_memory = isinstance(failure, RetryableError) and failure.kind == "out of memory"
                num_out_of_memory = num_out_of_memory + 1 if is_out_of_memory else 0
                # The first time something else may have taken the memory.
                if num_out_of_memory > 1 and (smaller := self.with_less_memory(settings)) is not None:
                    settings, num_failures, num_out_of_memory = smaller, 0, 0
                if num_failures > self.max_restarts or not isinstance(failure, RetryableError):
                    raise failure
                reporter.warn(f"{self.what} workers failed ({failure}), see {logs}; they are started again")
                time.sleep(PAUSE_S)
        # A handle of Ray's that is dropped after its shutdown ends the process with another exit code.
        gc.collect()
        if (self.folder / PretrainFiles.STOP).exists():
            (self.folder / PretrainFiles.STOP).unlink()
            raise KeyboardInterrupt

    def _chooses_gpu(self) -> bool:
        """Return whether the workers use GPUs; once chosen that stays, unless the config names another device."""
        path = self.folder / PretrainFiles.DEVICE
        if self.resources.device == "auto" and path.exists():
            return bool(read_document(path)["gpu"])
        chosen = uses_gpu(self.resources)
        write_document(path, {"gpu": chosen})
        return chosen

    def _is_handed_over(self) -> bool:
        """Return whether the workers ended to be started again, and take back the request."""
        handover = self.folder / PretrainFiles.HANDOVER
        was_requested = handover.exists()
        handover.unlink(missing_ok=True)
        is_done = any((self.folder / name).exists() for name in (PretrainFiles.STOP, PretrainFiles.RESULT))
        return was_requested and not is_done

    def make_trainer(
        self, work: Callable[[dict[str, Any]], None], settings: dict[str, Any], num_workers: int
    ) -> Any:
        """Return the trainer of one attempt."""
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
            ),
            run_config=ray.train.RunConfig(
                name=".ray-train",
                storage_path=str(self.folder),
                failure_config=ray.train.FailureConfig(
                    # Workers are restarted here, where it can be said why and with how many.
                    max_failures=0,
                    max_preemption_failures=0,
                    # Ray counts failed starts of workers here, and by default retries for ever without a message.
                    controller_failure_limit=_MAX_START_FAILURES,
                ),
            ),
        )


class _Attempt:
    """One start of the workers: waits for room, runs them, ends them when a node of theirs is lost."""

    def __init__(self, workers: Workers, nodes: NodeWatch | None, reporter: Reporter) -> None:
        self._workers, self._nodes, self._reporter = workers, nodes, reporter
        self._lost_node = ""
        self._lost_s = 0.0
        self._looked_for_room_s = time.monotonic()

    def run(self, work: Callable[[dict[str, Any]], None], settings: dict[str, Any]) -> Exception | None:
        """Return why the workers failed, None if they ended well. Raises errors of which a restart is no remedy."""
        from ray.exceptions import RayError
        from ray.train.v2.api.exceptions import TrainingFailedError

        workers = self._workers
        shutil.rmtree(workers.folder / PretrainFiles.NODES, ignore_errors=True)
        metrics_export.show(metrics_export.WORKERS, 0)
        with run_state.waiting_for(f"room for {workers.sizes[0]} {workers.what} workers"):
            self._size = wait_for_workers(
                workers.what, workers.sizes, workers.resources, settings["backend"] == "nccl", self._reporter
            )
        if self._size < workers.sizes[0]:
            self._reporter.warn(
                f"{workers.what} goes on with {self._size} of {workers.sizes[0]} workers, the same batch per step, "
                "until there is room for more"
            )
        with (
            HeldLease(workers.folder, self._reporter.line) as self._lease,
            structured_log.at(attempt=self._lease.lease.attempt),
        ):
            self._show_attempt()
            place = replace(structured_log.place(), run=str(workers.folder.parent))
            settings = {**settings, "lease": self._lease.lease, "place": place}
            trainer = workers.make_trainer(work, settings, self._size)
            try:
                run_until_done_or_stopped(
                    trainer.fit, workers.folder / PretrainFiles.STOP, self._reporter, self._look
                )
            except TrainingFailedError as error:
                return self._explain(error)
            except RayError as error:
                raise RetryableError(
                    f"Ray lost a process of its own ({first_line(error)}); run the same command again"
                ) from error
        return None

    def _show_attempt(self) -> None:
        attempt = self._lease.lease.attempt
        run_state.change(attempt=attempt, num_workers=self._size)
        metrics_export.show(metrics_export.ATTEMPT, attempt)
        metrics_export.show(metrics_export.WORKERS, self._size)

    def _look(self) -> None:
        """Watch the nodes of the workers; called every half a second while they run."""
        if self._nodes is None:
            return
        now_s = time.monotonic()
        if self._lost_node:
            if now_s - self._lost_s > _ABANDON_AFTER_S:
                raise RetryableError(
                    f"node {self._lost_node} was lost and Ray has not noticed for {_ABANDON_AFTER_S:g} s; run the "
                    "same command again",
                    "lost node",
                )
            return
        own = self._own_nodes()
        for node_id, name in self._nodes.lost_nodes().items():
            if node_id in own:
                # The other workers would wait in a collective until the network gives up.
                self._lost_node, self._lost_s = name, now_s
                self._lease.release()
                return
        handover = self._workers.folder / PretrainFiles.HANDOVER
        if own & self._nodes.leaving_nodes() and not handover.exists():
            self._reporter.warn(
                "a node of the workers is about to be taken away: they make a checkpoint and move"
            )
            handover.touch()
        if self._size < self._workers.sizes[0] and now_s - self._looked_for_room_s > _GROW_EVERY_S:
            self._looked_for_room_s = now_s
            if self._has_room_for_more() and not handover.exists():
                self._reporter.line(
                    "there is room for more workers: they make a checkpoint and are started again"
                )
                handover.touch()

    def _own_nodes(self) -> set[str]:
        folder = self._workers.folder / PretrainFiles.NODES
        with suppress(OSError):
            return {path.name for path in folder.iterdir()}
        return set()

    def _has_room_for_more(self) -> bool:
        import ray
        from ray.util import placement_group, remove_placement_group

        larger = min(size for size in self._workers.sizes if size > self._size)
        resources = self._workers.resources
        if resources.placement == "strict_spread" and sum(node["Alive"] for node in ray.nodes()) < larger:
            return False
        bundle = resources.of_worker("GPU" in ray.cluster_resources() and uses_gpu(resources))
        more = placement_group([bundle] * (larger - self._size), strategy=resources.placement.upper())
        try:
            return bool(more.wait(timeout_seconds=1))
        finally:
            remove_placement_group(more)

    def _explain(self, error: Any) -> Exception:
        folder = self._workers.folder
        if (folder / PretrainFiles.ERROR).exists():
            known = read_document(folder / PretrainFiles.ERROR)
            kind: FailureKind | None = known.get("kind")
            (folder / PretrainFiles.ERROR).unlink()
            if kind is None:
                raise UserError(known["message"]) from error
            return RetryableError(known["message"], kind)
        if (folder / PretrainFiles.HANG).exists():
            raise RetryableError(
                f"{read_document(folder / PretrainFiles.HANG)['text']}; run the same command again", "hang"
            ) from error
        what = self._workers.what
        if (folder / PretrainFiles.STOP).exists():
            raise RetryableError(
                f"{what} workers failed while they were asked to stop; run the same command again",
                "lost worker",
            ) from error
        if self._lost_node:
            return RetryableError(f"node {self._lost_node} was lost", "lost node")
        return failure_of(error)


def failure_of(error: Any) -> Exception:
    """Return what made workers fail, of Ray Train's TrainingFailedError; the first cause if several workers failed.

    A RetryableError, or a RuntimeError for an error of the program itself.
    """
    controller = getattr(error, "controller_failure", None)
    causes = list(getattr(error, "worker_failures", {}).values()) or [controller or error]
    kinds = [(_KINDS.index(_kind_of(cause)), cause) for cause in causes]
    number, cause = min(kinds, key=lambda one: one[0])
    kind, text = _KINDS[number], _shown_line(cause)
    if kind is None:
        return RuntimeError(text)
    return RetryableError(text, kind)


_KINDS: tuple[FailureKind | None, ...] = (
    *("out of memory", "storage", "lost node", "lost worker", "missing resources"),
    None,
    "network",
)
"""Kinds of failures, causes before consequences: when one worker dies, the others lose their connections to it."""
_SIGNS: tuple[tuple[FailureKind, tuple[str, ...]], ...] = (
    ("out of memory", ("OutOfMemory", "out of memory", "DefaultCPUAllocator: can't allocate")),
    ("storage", ("Stale file handle", "Input/output error", "Transport endpoint", "StorageLost")),
    ("lost node", ("NodeDied", "node died", "The node", "node failure", "raylet died")),
    (
        "lost worker",
        ("ActorDied", "ActorUnavailable", "WorkerCrashed", "actor died", "worker died", "WorkerDied"),
    ),
    ("missing resources", ("WorkerGroupStartupTimeout", "insufficient", "placement group")),
    (
        "network",
        (
            "connectFullMesh",
            "Gloo",
            "gloo",
            "NCCL",
            "TCPStore",
            "DistBackendError",
            "Connection",
            "Broken pipe",
        ),
    ),
)
"""Words in the types and messages of Ray 2.60 and torch 2.13 by which a failure is recognised."""


def _kind_of(cause: BaseException) -> FailureKind | None:
    text = f"{type(cause).__name__} {cause}"
    return next((kind for kind, words in _SIGNS if any(word in text for word in words)), None)


def _shown_line(cause: BaseException) -> str:
    """Return the line that says most: the last of a traceback, the first of any other message."""
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()] or [type(cause).__name__]
    line = lines[-1] if "Traceback" in str(cause) else lines[0]
    return line if len(line) <= _MAX_SHOWN_CHARS else line[: _MAX_SHOWN_CHARS - 3] + "..."


@contextmanager
def joined(settings: dict[str, Any], name: str) -> Iterator[Any]:
    """Join the process group that Ray set up, with output to `log_folder`/NAME-worker-RANK.log; for `work` in a worker.

    Yields the device. A UserError in the block is written for the process that started the workers. The process ends
    when its attempt's lease does.
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
        redirect_output(Path(settings["log_folder"]) / f"{name}-worker-{rank}.log"),
        structured_log.logged_to(
            structured_log.worker_log(folder, lease.attempt, rank), replace(settings["place"], rank=rank)
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


def lasting_outputs(folder: Path) -> set[Path]:
    """Return the files that show lasting progress: those of checkpoints and results."""
    return {path for name in (COMMIT_NAME, PretrainFiles.RESULT) for path in folder.rglob(name)}
