"""The nodes of a Ray cluster: a check of each before work starts, and notice of lost and returned ones."""

import hashlib
import importlib.metadata
import os
import platform
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import cluster
from cluster import metrics_export, run_state
from cluster.errors import UserError, first_line
from cluster.local_ray import session_folder
from cluster.reporter import Reporter

_PACKAGES = ("ray", "torch", "deepspeed", "tokenizers", "safetensors")
"""Packages whose versions must be the same on all nodes."""
_CHECK_TIMEOUT_S = 120.0
_MAX_CLOCK_OFFSET_S = 5.0
_MIN_FREE_BYTES = 1 << 30
_LOOK_S = 2.0
_CONNECT_TIMEOUT_S = 2.0
_FAILURES_TO_LOSE = 3
"""Consecutive failures after which a node counts as lost: 6 to 14 s."""
_NUM_CONNECTIONS = 64
_NODE_LABEL = "ray.io/node-id"


@dataclass(frozen=True)
class NodeReport:
    """What one node says of itself."""

    versions: Mapping[str, str]
    sees_marker: bool
    missing_paths: tuple[str, ...]
    clock_s: float
    free_bytes: int
    """Free space of the node's temporary folder, where Ray keeps its objects and logs."""


@contextmanager
def shared_marker(folder: Path) -> Iterator[Path]:
    """Write a file with a random name in `folder` for the block: a node that lacks it does not share the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    marker = folder / f".session-{secrets.token_hex(8)}"
    marker.write_text(marker.name)
    try:
        yield marker
    finally:
        with suppress(OSError):
            marker.unlink()


def check_cluster(folder: Path, paths: Sequence[Path], reporter: Reporter) -> None:
    """Check every node of a cluster like `check_nodes`; does nothing with a Ray of this command's own."""
    if session_folder() is None:
        with shared_marker(folder) as marker:
            check_nodes(marker, paths, reporter)


def check_nodes(marker: Path, paths: Sequence[Path], reporter: Reporter) -> None:
    """Check every node that has CPUs or GPUs; needs an open session on a cluster.

    Compared with this process are the versions of Python, of the packages and of our own code, and the clock. Every
    node must see `marker` and `paths`. Each problem is a line on the terminal. UserError when a node cannot take part.
    """
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"] and _has_work(node["Resources"])]
    if reports := _ask(nodes, marker, paths):
        wanted = report_node(str(marker), tuple(str(path) for path in paths)).versions
        bad = [name for name, (report, _) in reports.items() if _complain(name, report, wanted, reporter)]
        for name, (report, offset_s) in reports.items():
            _warn(name, report, offset_s, reporter)
        if bad:
            raise UserError(
                f"{len(bad)} of {len(reports)} nodes cannot take part ({', '.join(bad[:8])}): correct what the "
                "lines above say"
            )


def report_node(marker: str, paths: tuple[str, ...]) -> NodeReport:
    """Return what this node says of itself; runs as a task on every node."""
    versions = {"python": platform.python_version(), "permcode": _code_digest()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "absent"
    return NodeReport(
        versions,
        os.path.exists(marker),
        tuple(path for path in paths if not os.path.exists(path)),
        time.time(),
        shutil.disk_usage(os.environ.get("TMPDIR", "/tmp")).free,
    )


def _has_work(resources: Mapping[str, float]) -> bool:
    return resources.get("CPU", 0) > 0 or resources.get("GPU", 0) > 0


def _ask(
    nodes: Sequence[Mapping[str, Any]], marker: Path, paths: Sequence[Path]
) -> dict[str, tuple[NodeReport, float]]:
    """Return each node's report and the least possible offset of its clock, by name; nodes that leave are left out."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remote = ray.remote(num_cpus=0, max_retries=0)(report_node)
    arguments = (str(marker), tuple(str(path) for path in paths))
    asked_s = time.time()
    tasks = {
        remote.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
            *arguments
        ): node_name(node)
        for node in nodes
    }
    reports: dict[str, tuple[NodeReport, float]] = {}
    left = list(tasks)
    deadline_s = time.monotonic() + _CHECK_TIMEOUT_S
    while left and time.monotonic() < deadline_s:
        done, left = ray.wait(left, num_returns=1, timeout=1.0)
        for reference in done:
            with suppress(ray.exceptions.RayError):  # a node that leaves meanwhile is not used
                report = ray.get(reference)
                # The node read its clock at an unknown time between the two of ours.
                early_s, late_s = asked_s - report.clock_s, report.clock_s - time.time()
                reports[tasks[reference]] = report, max(0.0, early_s, late_s)
    return reports


def _complain(name: str, report: NodeReport, wanted: Mapping[str, str], reporter: Reporter) -> bool:
    """Print why a node cannot take part; return whether there was a reason."""
    reasons = [
        f"{package} {report.versions.get(package)} instead of {version}"
        for package, version in wanted.items()
        if report.versions.get(package) != version
    ]
    if not report.sees_marker:
        reasons.append("the run's folder is not the one that this command sees: mount the shared storage")
    reasons += [f"{path} is missing there" for path in report.missing_paths]
    if reasons:
        reporter.warn(f"node {name} cannot take part: {'; '.join(reasons)}")
    return bool(reasons)


def _warn(name: str, report: NodeReport, offset_s: float, reporter: Reporter) -> None:
    if offset_s > _MAX_CLOCK_OFFSET_S:
        reporter.warn(
            f"node {name}: its clock differs by at least {offset_s:.0f} s: times in logs will not fit"
        )
    if report.free_bytes < _MIN_FREE_BYTES:
        reporter.warn(f"node {name}: only {report.free_bytes / 1e6:.0f} MB are free in its temporary folder")


def _code_digest() -> str:
    """Return a digest of our own source files as they are imported here."""
    root = Path(cluster.__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for package in ("cluster", "data_prep", "pretrain", "finetune", "pipeline"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def node_name(node: Mapping[str, Any]) -> str:
    """Return a node's host name and address."""
    return f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"


def node_selector(nodes: Set[str], is_in: bool) -> dict[str, str]:
    """Return Ray's label selector for some nodes, or for all others."""
    return {_NODE_LABEL: f"{'' if is_in else '!'}in({','.join(sorted(nodes))})"}


class NodeWatch(AbstractContextManager["NodeWatch"]):
    """Says when nodes of the cluster are lost and come back, while the block runs.

    Ray notices a machine without power only after 30 s or more. Here a node is lost when its raylet accepted no
    connection three times in a row, which takes less than 15 s, or when Ray says so.
    """

    def __init__(self, on_change: Callable[[str], None]) -> None:
        """Prepare; `on_change` gets a line for each change, from another thread."""
        self._on_change = on_change
        self._failures: dict[str, int] = {}
        self._lost: dict[str, str] = {}
        """Names by node id."""
        self._known: dict[str, Mapping[str, Any]] = {}
        self._has_looked = False
        self._leaving: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="nodes", daemon=True)

    def __enter__(self) -> "NodeWatch":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(timeout=_LOOK_S)

    def lost_nodes(self) -> dict[str, str]:
        """Return the names of the lost nodes by their ids."""
        return dict(self._lost)

    def leaving_nodes(self) -> set[str]:
        """Return the ids of the nodes that Ray is about to take away, as at the preemption of a spot machine."""
        return self._leaving

    def _watch(self) -> None:
        with ThreadPoolExecutor(_NUM_CONNECTIONS, thread_name_prefix="nodes") as pool:
            while not self._ended.wait(_LOOK_S):
                try:
                    self._look(pool)
                except Exception as error:  # Ray itself may be lost, which others report
                    self._on_change(f"the cluster's nodes cannot be listed ({first_line(error)})")
                    return

    def _look(self, pool: ThreadPoolExecutor) -> None:
        import ray

        # Ray Train reads the notices in the same way (2.60); there is no public call.
        self._leaving = set(ray._private.state.state.get_draining_nodes() or {})
        alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        for node_id in self._known.keys() - alive.keys():
            self._report_loss(node_id)
            del self._known[node_id]
        num_known = len(self._known)
        for node_id in alive.keys() - self._known.keys():
            self._known[node_id] = alive[node_id]
            if self._has_looked:
                self._on_change(f"node {node_name(alive[node_id])} has joined")
        if len(self._known) != num_known or not self._has_looked:
            self._note_losses()
        self._has_looked = True
        answers = pool.map(_answers, self._known.values())
        for node_id, answers_now in zip(list(self._known), answers, strict=True):
            self._count(node_id, answers_now)

    def _count(self, node_id: str, answers: bool) -> None:
        if not answers:
            self._failures[node_id] = self._failures.get(node_id, 0) + 1
            if self._failures[node_id] >= _FAILURES_TO_LOSE:
                self._report_loss(node_id)
            return
        self._failures.pop(node_id, None)
        if self._lost.pop(node_id, None) is not None:
            self._note_losses()
            self._on_change(f"node {node_name(self._known[node_id])} answers again")

    def _report_loss(self, node_id: str) -> None:
        if node_id not in self._lost:
            self._lost[node_id] = node_name(self._known[node_id])
            self._note_losses()
            self._on_change(f"node {self._lost[node_id]} is lost; its work waits for room or for its return")

    def _note_losses(self) -> None:
        """Show how many nodes are lost; a machine that has joined again under a new id is not."""
        there = {node_name(node) for node_id, node in self._known.items() if node_id not in self._lost}
        gone = sorted(set(self._lost.values()) - there)
        run_state.change_nodes(gone)
        metrics_export.show(metrics_export.LOST_NODES, len(gone))


@contextmanager
def watched_nodes(on_change: Callable[[str], None]) -> Iterator[NodeWatch | None]:
    """Watch the cluster's nodes during the block; None with a Ray of this command's own."""
    if session_folder() is not None:
        yield None
        return
    with NodeWatch(on_change) as nodes:
        yield nodes


def _answers(node: Mapping[str, Any]) -> bool:
    try:
        address = (node["NodeManagerAddress"], node["NodeManagerPort"])
        socket.create_connection(address, timeout=_CONNECT_TIMEOUT_S).close()
        return True
    except OSError:
        return False
