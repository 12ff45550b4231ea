"""Groups of workers that do an experiment's jobs side by side, as many at once as the cluster has room for."""

import gc
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cluster import metrics_export
from cluster.errors import RetryableError
from cluster.further_room import FurtherRoom
from cluster.lease import end_attempt
from cluster.local_ray import session_folder
from cluster.nodes import NodeWatch, shared_marker, watched_nodes
from cluster.reporter import Reporter
from finetune.experiment.dealing import Hand
from finetune.experiment.job import Job
from pretrain.attempt import Attempt
from pretrain.files import PretrainFiles
from pretrain.health.stop import request_stop, wait_or_stop
from pretrain.ray_workers import PAUSE_S, show_attempt, wait_for_room
from pretrain.workers import Workers, lasting_outputs


def run_groups(
    workers: Workers,
    work: Callable[[dict[str, Any]], None],
    settings: dict[str, Any],
    jobs: Sequence[Job],
    after: Callable[[Job], Job | None],
    reporter: Reporter,
) -> None:
    """Let groups of workers do all `jobs`, none of which has a result yet; needs an open Ray session.

    A group runs `work(settings)`, which does what is dealt to it. `after(job)` is the job that must be done before.
    Where the cluster has room for another group, one is started; workers on CPUs have their nodes for themselves. A
    group that fails or loses a node gives its unfinished job back. A job that fails `max_restarts` times in a row
    without lasting progress, and an error that no restart helps against, end the experiment: the other groups finish
    the job that they do, then the error is raised, as `run_workers` does. KeyboardInterrupt when a stop was requested.
    """
    workers.folder.mkdir(parents=True, exist_ok=True)
    with shared_marker(workers.folder) as marker, watched_nodes(reporter.warn) as nodes:
        settings = {**settings, **workers.settings(), "marker": marker}
        if _end_earlier_groups(workers.folder):
            time.sleep(PAUSE_S)
        groups = _Groups(workers, work, settings, _Queue(list(jobs), after), nodes, reporter)
        try:
            while groups.start_first():
                wait_or_stop(groups.look, groups.request_stop)
        finally:
            groups.close()
    # A handle of Ray's that is dropped after its shutdown ends the process with another exit code.
    gc.collect()
    groups.raise_end()


def _end_earlier_groups(folder: Path) -> bool:
    """End groups that outlive a command that was killed; return whether there were any."""
    with ThreadPoolExecutor() as pool:
        return any(pool.map(end_attempt, (folder / PretrainFiles.GROUPS).glob("*")))


class _Queue:
    """The jobs that no group has."""

    def __init__(self, jobs: list[Job], after: Callable[[Job], Job | None]) -> None:
        self._jobs, self._after = jobs, after
        self._order = {job: place for place, job in enumerate(jobs)}
        self._ready_s: dict[Job, float] = {}

    def is_empty(self) -> bool:
        return not self._jobs

    def wait_s(self) -> float:
        """Return after how long a job can be taken, where no group works."""
        return max(0.0, min(self._ready_s.get(job, 0.0) for job in self._jobs) - time.monotonic())

    def next_ready(self) -> Job | None:
        """Return the first job that can be done now."""
        now_s = time.monotonic()
        for job in self._jobs:
            before = self._after(job)
            if self._ready_s.get(job, 0.0) <= now_s and (before is None or before.result.exists()):
                return job
        return None

    def take(self, most: int | None = 1) -> list[Job]:
        """Remove and return the first ready job, or with `most` None all jobs in their order."""
        if most is None:
            taken, self._jobs = self._jobs, []
            return taken
        job = self.next_ready()
        if job is None:
            return []
        self._jobs.remove(job)
        return [job]

    def put_back(self, jobs: Sequence[Job], pause_s: float) -> None:
        for job in jobs:
            self._ready_s[job] = time.monotonic() + pause_s
        self._jobs = sorted([*self._jobs, *jobs], key=lambda job: self._order[job])


@dataclass
class _Group:
    """A group that runs, and what it was dealt."""

    attempt: Attempt
    jobs: list[Job]
    is_last: bool
    placed_on: frozenset[str]
    """The nodes that were chosen for it; empty where Ray chooses."""
    before: set[Path] = field(default_factory=set)
    """The lasting outputs of its jobs, as they were when they were dealt."""

    def nodes(self) -> frozenset[str]:
        return self.placed_on | self.attempt.own_nodes()

    def left(self) -> list[Job]:
        return [job for job in self.jobs if not job.result.exists()]

    def note_outputs(self, jobs: Sequence[Job]) -> None:
        self.before |= {path for job in jobs for path in lasting_outputs(job.folder)}

    def has_progress(self) -> bool:
        return bool({path for job in self.jobs for path in lasting_outputs(job.folder)} - self.before)

    def deal(self) -> None:
        keys = tuple(job.key for job in self.jobs)
        Hand(self.attempt.number, keys, self.is_last).write(self.attempt.workers.own_folder)


class _Groups:
    """All groups of an experiment; `look` is to be called every half a second."""

    def __init__(
        self,
        workers: Workers,
        work: Callable[[dict[str, Any]], None],
        settings: dict[str, Any],
        queue: _Queue,
        nodes: NodeWatch | None,
        reporter: Reporter,
    ) -> None:
        self._workers, self._work, self._settings = workers, work, settings
        self._queue, self._nodes, self._reporter = queue, nodes, reporter
        self._running: list[_Group] = []
        self._failures: Counter[Job] = Counter()
        self._error: Exception | None = None
        self._is_stopping = False
        self._on_gpu = settings["backend"] == "nccl"
        # On one machine without GPUs one group has all cores.
        self._is_alone = session_folder() is not None and not self._on_gpu
        self._room = FurtherRoom(workers.resources, self._on_gpu, workers.sizes[0])

    def start_first(self) -> bool:
        """Wait for room for a group and start it, if there are jobs for one; return whether it was started."""
        if self._may_not_begin() or self._queue.is_empty():
            return False
        metrics_export.show(metrics_export.WORKERS, 0)
        time.sleep(self._queue.wait_s())
        self._start(wait_for_room(self._workers, self._on_gpu, self._reporter))
        return True

    def look(self) -> bool:
        """Look after the groups that run and start another one if there is room; return whether none runs any more."""
        for group in list(self._running):
            if self._has_ended(group):
                self._running.remove(group)
                group.attempt.__exit__(None, None, None)
                self._show()
        if self._running:
            self._start_further()
        return not self._running

    def request_stop(self) -> None:
        """Ask all groups to end after the step in progress, with a checkpoint."""
        self._is_stopping = True
        request_stop([group.attempt.workers.own_folder for group in self._running], self._reporter)

    def close(self) -> None:
        """End the groups that still run."""
        self._room.close()
        for group in self._running:
            group.attempt.__exit__(None, None, None)

    def raise_end(self) -> None:
        """Raise why the experiment has ended before all jobs were done."""
        folder = self._workers.folder
        stops = [
            folder / PretrainFiles.STOP,
            *(folder / PretrainFiles.GROUPS).glob(f"*/{PretrainFiles.STOP}"),
        ]
        self._is_stopping |= any(stop.exists() for stop in stops)
        for stop in stops:
            stop.unlink(missing_ok=True)
        if self._error is not None:
            raise self._error
        if self._is_stopping:
            raise KeyboardInterrupt

    def _may_not_begin(self) -> bool:
        return self._error is not None or self._is_stopping

    def _start(self, num_workers: int, nodes: frozenset[str] = frozenset()) -> None:
        numbers = {group.attempt.workers.group for group in self._running}
        number = next(number for number in range(1, len(numbers) + 2) if number not in numbers)
        workers = replace(self._workers, group=number)
        workers.own_folder.mkdir(parents=True, exist_ok=True)
        workers.remove_requests()
        attempt = Attempt(workers, num_workers, self._nodes, self._reporter).__enter__()
        jobs = self._queue.take(None if self._is_alone else 1)
        group = _Group(attempt, jobs, self._is_alone, nodes)
        self._running.append(group)
        group.note_outputs(jobs)
        group.deal()
        attempt.prepare(self._work, self._settings, nodes)
        self._show()

    def _start_further(self) -> None:
        """Start another group if there are jobs and room for it."""
        if self._is_alone or self._may_not_begin() or self._queue.next_ready() is None:
            self._room.close()
            return
        taken = [group.nodes() for group in self._running]
        if not all(taken):  # the newest has yet to take its room
            return
        lost = self._nodes.lost_nodes() if self._nodes is not None else {}
        nodes = self._room.look(frozenset(lost).union(*([] if self._on_gpu else taken)))
        if nodes:
            what = self._workers.what
            self._reporter.line(f"{what}: there is room for {len(self._running) + 1} groups side by side")
            self._start(self._workers.sizes[0], frozenset() if self._on_gpu else nodes)

    def _has_ended(self, group: _Group) -> bool:
        try:
            if not group.attempt.look():
                with suppress(OSError):  # storage that does not answer for a while
                    self._deal_more(group)
                return False
            self._judge(group, group.attempt.failure())
        except Exception as error:
            self._end_with(group, error)
        return True

    def _deal_more(self, group: _Group) -> None:
        """Give the group another job when its last one is done, or let it end."""
        if group.is_last or not group.jobs[-1].result.exists():
            return
        jobs = [] if self._may_not_begin() else self._queue.take()
        group.is_last = not jobs
        group.note_outputs(jobs)
        group.jobs += jobs
        group.deal()

    def _judge(self, group: _Group, failure: Exception | None) -> None:
        """Give the jobs back that an ended group left, or end the experiment."""
        left, what = group.left(), self._workers.what
        if failure is None:
            if not left or (group.attempt.workers.own_folder / PretrainFiles.STOP).exists():
                return
            if group.attempt.take_handover():
                self._reporter.line(f"{what}: the workers ended with a checkpoint and are started again")
                self._queue.put_back(left, 0.0)
                return
            failure = RetryableError(f"the workers have ended and {left[0].result} is not there", "storage")
        job = (left or group.jobs)[0]
        self._failures[job] = 0 if group.has_progress() else self._failures[job] + 1
        if self._failures[job] > self._workers.max_restarts or not isinstance(failure, RetryableError):
            self._end_with(group, failure)
            return
        self._reporter.warn(
            f"{what} workers failed ({failure}), see {self._workers.logs}; they are started again"
        )
        self._queue.put_back(left, PAUSE_S)

    def _end_with(self, group: _Group, error: Exception) -> None:
        """Begin no more jobs, for this reason."""
        self._error = self._error or error
        if len(self._running) > 1:
            self._reporter.warn(
                f"{self._workers.what} workers failed ({error}): the other groups finish the jobs that they do"
            )

    def _show(self) -> None:
        if self._running:
            num_workers = sum(group.attempt.num_workers for group in self._running)
            show_attempt(self._running[-1].attempt.number, num_workers)
