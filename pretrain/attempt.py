"""One start of a group of workers, under a numbered lease of its own: its end, and why it failed."""

import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any

from cluster import structured_log
from cluster.background import Background
from cluster.errors import FailureKind, RetryableError, UserError, first_line
from cluster.further_room import FurtherRoom
from cluster.lease import HeldLease
from cluster.nodes import NodeWatch
from cluster.reporter import Reporter
from cluster.storage import read_document
from pretrain.files import PretrainFiles
from pretrain.worker_failures import failure_of
from pretrain.workers import Workers

_GROW_EVERY_S = 30.0
"""How often it is tried whether there is room for more workers."""
_ABANDON_AFTER_S = 90.0
"""How long Ray Train may take to notice that the workers of an ended attempt are gone."""


class Attempt(AbstractContextManager["Attempt"]):
    """Holds the lease of the group's folder during the block: when the lease ends, so do the workers.

    `look` is to be called every half a second while they run: it ends the workers when a node of theirs is lost.
    """

    def __init__(
        self, workers: Workers, num_workers: int, nodes: NodeWatch | None, reporter: Reporter
    ) -> None:
        self.workers, self.num_workers = workers, num_workers
        self._nodes, self._reporter = nodes, reporter
        self._lost_node = ""
        self._lost_s = 0.0
        self._looked_for_room_s = time.monotonic()
        self._further_room: FurtherRoom | None = None
        self._earlier_hang_ns = self._hang_ns()

    def __enter__(self) -> "Attempt":
        shutil.rmtree(self.workers.own_folder / PretrainFiles.NODES, ignore_errors=True)
        self._held = HeldLease(self.workers.own_folder, self._reporter.line)
        self._held.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.release()
        if self._further_room is not None:
            self._further_room.close()

    @property
    def number(self) -> int:
        """The number of the attempt in the group's folder."""
        return self._held.lease.attempt

    def prepare(
        self,
        work: Callable[[dict[str, Any]], None],
        settings: dict[str, Any],
        nodes: frozenset[str] = frozenset(),
    ) -> None:
        """Make ready to run `work(settings)` in every worker, on `nodes` (Ray's ids) or anywhere if there are none."""
        workers = self.workers
        own = {
            "folder": workers.own_folder,
            "group_suffix": "" if workers.group == 1 else f"-{workers.group}",
            "events": structured_log.attempt_logs(workers.folder, self.number, workers.group),
            "lease": self._held.lease,
            "place": replace(structured_log.place(), run=str(workers.folder.parent), attempt=self.number),
        }
        trainer = workers.make_trainer(work, {**settings, **own}, self.num_workers, nodes)
        self._on_gpu = settings["backend"] == "nccl"
        # In the main thread Ray would handle Ctrl-C and end the workers without a checkpoint.
        self._fit = Background(trainer.fit, "fit")

    def look(self) -> bool:
        """Start the workers the first time; return whether they have ended. Watches their nodes meanwhile.

        To be called every half a second. Raises RetryableError when Ray does not notice the end of the workers.
        """
        self._fit.start()
        if self._fit.has_ended():
            return True
        if self._nodes is not None:
            self._watch_nodes(self._nodes)
        return False

    def failure(self) -> Exception | None:
        """Return why the workers failed, None if they ended well. Raises errors of which a restart is no remedy."""
        from ray.exceptions import RayError
        from ray.train.v2.api.exceptions import TrainingFailedError

        try:
            self._fit.end()
        except TrainingFailedError as error:
            return self._explain(error)
        except RayError as error:
            raise RetryableError(
                f"Ray lost a process of its own ({first_line(error)}); run the same command again"
            ) from error
        return None

    def take_handover(self) -> bool:
        """Return whether the workers were asked to end and to be started again, and take the request back."""
        handover = self.workers.own_folder / PretrainFiles.HANDOVER
        was_requested = handover.exists()
        handover.unlink(missing_ok=True)
        return was_requested

    def own_nodes(self) -> frozenset[str]:
        """Return Ray's ids of the nodes on which workers have begun."""
        with suppress(OSError):
            return frozenset(path.name for path in (self.workers.own_folder / PretrainFiles.NODES).iterdir())
        return frozenset()

    def _watch_nodes(self, nodes: NodeWatch) -> None:
        now_s = time.monotonic()
        if self._lost_node:
            if now_s - self._lost_s > _ABANDON_AFTER_S:
                raise RetryableError(
                    f"node {self._lost_node} was lost and Ray has not noticed for {_ABANDON_AFTER_S:g} s; run the "
                    "same command again",
                    "lost node",
                )
            return
        own = self.own_nodes()
        for node_id, name in nodes.lost_nodes().items():
            if node_id in own:
                # The other workers would wait in a collective until the network gives up.
                self._lost_node, self._lost_s = name, now_s
                self._held.release()
                return
        if own & nodes.leaving_nodes():
            self._ask_to_move(
                "a node of the workers is about to be taken away: they make a checkpoint and move"
            )
        elif self._is_room_for_more(own, now_s):
            self._ask_to_move("there is room for more workers: they make a checkpoint and are started again")

    def _ask_to_move(self, why: str) -> None:
        handover = self.workers.own_folder / PretrainFiles.HANDOVER
        if not handover.exists():
            self._reporter.warn(why)
            handover.touch()

    def _is_room_for_more(self, own: frozenset[str], now_s: float) -> bool:
        if self.num_workers >= self.workers.sizes[0] or now_s - self._looked_for_room_s < _GROW_EVERY_S:
            return False
        self._looked_for_room_s = now_s
        resources = self.workers.resources
        if self._further_room is None:
            larger = min(size for size in self.workers.sizes if size > self.num_workers)
            self._further_room = FurtherRoom(resources, self._on_gpu, larger - self.num_workers)
        return bool(self._further_room.look(own if resources.placement == "strict_spread" else frozenset()))

    def _hang_ns(self) -> int | None:
        """Return when the report of a hang was written, if there is one; it may be an earlier attempt's."""
        with suppress(OSError):
            return (self.workers.own_folder / PretrainFiles.HANG).stat().st_mtime_ns
        return None

    def _explain(self, error: Any) -> Exception:
        folder, what = self.workers.own_folder, self.workers.what
        if (folder / PretrainFiles.ERROR).exists():
            known = read_document(folder / PretrainFiles.ERROR)
            kind: FailureKind | None = known.get("kind")
            (folder / PretrainFiles.ERROR).unlink()
            if kind is None:
                raise UserError(known["message"]) from error
            return RetryableError(known["message"], kind)
        if self._hang_ns() not in (None, self._earlier_hang_ns):
            raise RetryableError(
                f"{read_document(folder / PretrainFiles.HANG)['text']}; run the same command again", "hang"
            ) from error
        if (folder / PretrainFiles.STOP).exists():
            raise RetryableError(
                f"{what} workers failed while they were asked to stop; run the same command again",
                "lost worker",
            ) from error
        if self._lost_node:
            return RetryableError(f"node {self._lost_node} was lost", "lost node")
        return failure_of(error)
