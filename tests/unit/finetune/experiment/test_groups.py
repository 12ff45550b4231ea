"""Groups of workers beside each other: which jobs they get, and what happens to the jobs of one that fails."""

import threading
from collections.abc import Callable, Set
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from ray.train.v2.api.exceptions import WorkerGroupError

from cluster.errors import RetryableError, UserError
from cluster.lease import HeldLease
from cluster.storage import write_json
from finetune.experiment import dealing, groups
from finetune.experiment.dealing import dealt_jobs
from finetune.experiment.groups import run_groups
from finetune.experiment.job import Job
from pretrain import workers as workers_module
from pretrain.files import PretrainFiles
from pretrain.health.stop import StopRequest
from pretrain.workers import Workers
from tests.unit.pipeline.recording_reporter import RecordingReporter

_PATIENCE_S = 30


class Cluster:
    """In place of Ray: nodes that each have room for one group, and groups that do what is dealt to them."""

    def __init__(self, num_nodes: int, do: Callable[[Job, Path], None]) -> None:
        self.nodes = [f"node-{number}" for number in range(num_nodes)]
        self._do, self._jobs = do, list[Job]()
        self.starts: list[tuple[int, tuple[str, ...]]] = []
        """Of each start of a group its number and the jobs that it did or began."""
        self.begun: set[int] = set()

    def make_trainer(
        self,
        workers: Workers,
        work: object,
        settings: dict[str, Any],
        num_workers: int,
        nodes: frozenset[str],
    ) -> "Cluster.Fit":
        return Cluster.Fit(self, workers.group, settings, nodes or frozenset(self.nodes[:1]))

    class Fit:
        def __init__(
            self, cluster: "Cluster", group: int, settings: dict[str, Any], nodes: frozenset[str]
        ) -> None:
            self._cluster, self._group, self._settings, self._nodes = cluster, group, settings, nodes

        def fit(self) -> None:
            folder: Path = self._settings["folder"]
            stop = StopRequest(folder, looks_for_file=True)
            for node in self._nodes:
                (folder / PretrainFiles.NODES).mkdir(exist_ok=True)
                (folder / PretrainFiles.NODES / node).touch()
            self._cluster.begun.add(self._group)
            begun: list[str] = []
            try:
                for job in dealt_jobs(folder, self._settings["lease"].attempt, self._settings["jobs"], stop):
                    begun.append(job.key)
                    self._cluster._do(job, folder)
                    write_json(job.result, {})
            finally:
                self._cluster.starts.append((self._group, tuple(begun)))


class Room:
    """In place of the request to Ray: the first node that is not avoided."""

    cluster: Cluster

    def __init__(self, *_: object) -> None:
        pass

    def look(self, avoid: Set[str]) -> frozenset[str]:
        return frozenset([node for node in self.cluster.nodes if node not in avoid][:1])

    def close(self) -> None:
        pass


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RecordingReporter]:
    monkeypatch.setattr(workers_module, "uses_gpu", lambda resources: False)
    monkeypatch.setattr(groups, "wait_for_room", lambda workers, *_: workers.sizes[0])
    monkeypatch.setattr(groups, "watched_nodes", lambda on_change: nullcontext())
    monkeypatch.setattr(groups, "FurtherRoom", Room)
    monkeypatch.setattr(groups, "PAUSE_S", 0.0)
    monkeypatch.setattr(dealing, "agreed", lambda look: look())
    reporter = RecordingReporter()

    def run_jobs(
        cluster: Cluster, names: list[str], after: Callable[[Job], Job | None] = lambda job: None
    ) -> RecordingReporter:
        monkeypatch.setattr(Room, "cluster", cluster, raising=False)
        monkeypatch.setattr(
            Workers, "make_trainer", lambda workers, *given: cluster.make_trainer(workers, *given)
        )
        workers = Workers("finetuning", (1,), 2, tmp_path / "stage")
        run_groups(
            workers,
            lambda settings: None,
            {"jobs": jobs(tmp_path, names)},
            jobs(tmp_path, names),
            after,
            reporter,
        )
        return reporter

    run_jobs.reporter = reporter  # type: ignore[attr-defined]
    return run_jobs


def jobs(tmp_path: Path, names: list[str]) -> list[Job]:
    """SYSTEM or SYSTEM/SEED."""
    parts = [name.partition("/") for name in names]
    return [
        Job(system, int(seed or 0), tmp_path / "stage" / system / f"seed-{int(seed or 0)}")
        for system, _, seed in parts
    ]


def dies() -> WorkerGroupError:
    return WorkerGroupError("a worker died", {0: RuntimeError("ActorDied: killed")})


def test_two_nodes_do_two_jobs_at_the_same_time(run: Callable[..., RecordingReporter]) -> None:
    meeting = threading.Barrier(2)
    cluster = Cluster(2, lambda job, folder: meeting.wait(_PATIENCE_S))
    reporter = run(cluster, ["a", "b"])
    assert sorted(cluster.starts) == [(1, ("a/seed-0",)), (2, ("b/seed-0",))]
    assert "finetuning: there is room for 2 groups side by side" in reporter.lines


def test_one_node_does_all_jobs_in_their_order_in_one_group(run: Callable[..., RecordingReporter]) -> None:
    cluster = Cluster(1, lambda job, folder: None)
    run(cluster, ["a", "b", "c"])
    assert cluster.starts == [(1, ("a/seed-0", "b/seed-0", "c/seed-0"))]


def test_groups_with_gpus_share_a_node(
    run: Callable[..., RecordingReporter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On this machine's own Ray, too. A group asks for its room when the one before has taken its own."""
    monkeypatch.setattr(workers_module, "uses_gpu", lambda resources: True)
    monkeypatch.setattr(groups, "session_folder", lambda: Path("/tmp/session"))
    meeting = threading.Barrier(2)
    cluster = Cluster(1, lambda job, folder: meeting.wait(_PATIENCE_S))
    asked_with: list[int] = []

    def look(self: Room, avoid: Set[str]) -> frozenset[str]:
        assert not avoid
        asked_with.append(len(cluster.begun))
        return frozenset(cluster.nodes) if len(cluster.begun) < 2 else frozenset()

    monkeypatch.setattr(Room, "look", look)
    run(cluster, ["a", "b", "c", "d"])
    assert cluster.begun == {1, 2}
    assert 0 not in asked_with
    assert sorted(key for _, keys in cluster.starts for key in keys) == [
        f"{name}/seed-0" for name in ("a", "b", "c", "d")
    ]


def test_this_machine_s_own_ray_has_one_group_on_cpus(
    run: Callable[..., RecordingReporter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "session_folder", lambda: Path("/tmp/session"))
    cluster = Cluster(2, lambda job, folder: None)
    run(cluster, ["a", "b", "c"])
    assert cluster.starts == [(1, ("a/seed-0", "b/seed-0", "c/seed-0"))]


def test_a_group_that_fails_is_started_again_and_the_other_one_is_not(
    run: Callable[..., RecordingReporter],
) -> None:
    meeting, goes_on = threading.Barrier(2), threading.Event()

    def do(job: Job, folder: Path) -> None:
        if meeting.broken:  # the second time
            goes_on.set()
            return
        meeting.wait(_PATIENCE_S)
        if job.system == "a":
            meeting.abort()
            raise dies()
        assert goes_on.wait(_PATIENCE_S)

    cluster = Cluster(2, do)
    reporter = run(cluster, ["a", "b"])
    assert sorted(begun for _, begun in cluster.starts) == [("a/seed-0",), ("a/seed-0",), ("b/seed-0",)]
    assert sum("are started again" in line for line in reporter.warnings) == 1


def test_a_job_that_always_fails_ends_the_experiment_when_the_running_one_is_done(
    run: Callable[..., RecordingReporter], tmp_path: Path
) -> None:
    good_runs, may_end = threading.Event(), threading.Event()
    num_failures = 0

    def do(job: Job, folder: Path) -> None:
        nonlocal num_failures
        if job.system == "bad":
            assert good_runs.wait(_PATIENCE_S)
            num_failures += 1
            if num_failures == 3:
                may_end.set()
            raise dies()
        good_runs.set()
        assert may_end.wait(_PATIENCE_S)
        threading.Event().wait(1.5)  # until the failure has been noticed

    cluster = Cluster(2, do)
    with pytest.raises(RetryableError, match="killed") as caught:
        run(cluster, ["bad", "good", "later"])
    assert caught.value.kind == "lost worker"
    assert num_failures == 3
    bad, good, later = jobs(tmp_path, ["bad", "good", "later"])
    assert (bad.result.exists(), good.result.exists(), later.result.exists()) == (False, True, False)
    assert "the other groups finish the jobs" in run.reporter.warnings[-1]  # type: ignore[attr-defined]


def test_a_user_s_error_is_raised_and_costs_no_other_job(
    run: Callable[..., RecordingReporter], tmp_path: Path
) -> None:
    meeting = threading.Barrier(2)

    def do(job: Job, folder: Path) -> None:
        meeting.wait(_PATIENCE_S)
        if job.system == "bad":
            write_json(folder / PretrainFiles.ERROR, {"message": "training diverged"})
            raise dies()
        threading.Event().wait(1.5)

    cluster = Cluster(2, do)
    with pytest.raises(UserError, match="training diverged"):
        run(cluster, ["bad", "good", "later"])
    bad, good, later = jobs(tmp_path, ["bad", "good", "later"])
    assert (bad.result.exists(), good.result.exists(), later.result.exists()) == (False, True, False)


def test_a_job_waits_for_the_one_that_it_needs_while_others_are_done(
    run: Callable[..., RecordingReporter], tmp_path: Path
) -> None:
    other_is_done = threading.Event()
    order = []

    def do(job: Job, folder: Path) -> None:
        if job.key == "a/seed-0":
            assert other_is_done.wait(_PATIENCE_S)
        order.append(job.key)
        if job.system == "b":
            other_is_done.set()

    first = jobs(tmp_path, ["a"])[0]
    cluster = Cluster(2, do)
    run(cluster, ["a/0", "a/1", "b"], lambda job: first if job.key == "a/seed-1" else None)
    assert order == ["b/seed-0", "a/seed-0", "a/seed-1"]


def test_a_stop_reaches_all_groups(
    run: Callable[..., RecordingReporter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting = threading.Barrier(2)
    are_working = threading.Event()

    def do(job: Job, folder: Path) -> None:
        if meeting.wait(_PATIENCE_S) == 0:
            are_working.set()
        stop = StopRequest(folder, looks_for_file=True)
        while not stop.is_made():
            threading.Event().wait(0.1)
        raise Stopped

    class Stopped(Exception):
        pass

    fit = Cluster.Fit.fit

    def fit_until_stopped(self: Cluster.Fit) -> None:
        try:
            fit(self)
        except Stopped:  # as `run_jobs`, which then ends early
            pass

    def interrupted_once(look: Callable[[], bool], request_stop: Callable[[], None]) -> None:
        while not are_working.is_set():
            look()
        request_stop()
        while not look():
            threading.Event().wait(0.1)

    monkeypatch.setattr(Cluster.Fit, "fit", fit_until_stopped)
    monkeypatch.setattr(groups, "wait_or_stop", interrupted_once)
    cluster = Cluster(2, do)
    with pytest.raises(KeyboardInterrupt):
        run(cluster, ["a", "b", "c"])
    assert len(cluster.starts) == 2
    assert not list((tmp_path / "stage").rglob(PretrainFiles.STOP))


def test_groups_that_outlive_their_command_are_ended_first(
    run: Callable[..., RecordingReporter], tmp_path: Path
) -> None:
    folder = tmp_path / "stage" / PretrainFiles.GROUPS / "2"
    folder.mkdir(parents=True)
    with HeldLease(folder) as earlier:
        run(Cluster(1, lambda job, folder: None), ["a"])
        assert not earlier.lease.is_held()
