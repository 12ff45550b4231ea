"""Simulate the control plane of up to 1,024 workers without GPUs, and fit how each step grows with their number.

    python -m benchmarks.control_plane [--ranks 128 256 512 1024] [--folder FOLDER] [--rounds 5]

The steps call the program's own functions on real files: a worker is a thread. Collectives go through memory instead of
a network, but everything that is sent is pickled, and unpickled by each receiver; where receivers do nothing but that,
four stand for all. The rendezvous is torch's TCPStore. Files of tensors are small: their bytes per worker do not depend
on the number of workers. Every step is fitted as time ~ ranks^exponent; n log n is an exponent of 1.17 between
128 and 1,024.
"""

import argparse
import gc
import hashlib
import math
import os
import pickle
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from cluster.journal import Journal
from cluster.lease import HeldLease
from data_prep.finished.manifest import MANIFEST_NAME, Manifest, write_manifest
from data_prep.finished.prepared import PreparedCorpus, open_prepared
from pipeline.commands.plan import Assumptions, plan_lines
from pipeline.folder.recipe import load_run_config
from pretrain.agreement import agreed
from pretrain.checkpoint.listing import step_name
from pretrain.checkpoint.rank_files import RankFiles, gather_parts, publish, temporary_folder
from pretrain.checkpoint.reading import CheckpointTensors
from pretrain.checkpoint.retention import superseded_checkpoints
from pretrain.checkpoint.snapshot import Snapshot, StaticFiles
from pretrain.config import CheckpointConfig, PretrainConfig
from pretrain.data.lanes import LaneReader
from pretrain.engine.pieces import MOMENTS, EnginePieces, Piece
from pretrain.health.watchdog import Watchdog
from pretrain.journal.recorder import Recorder
from pretrain.model.segment_memory import SegmentMemory
from pretrain.resume import prepare_resume
from pretrain.run import Run
from pretrain.workers import lasting_outputs
from tests.checkpoints import STATIC
from tests.example_corpus import stdlib_packages, write_corpus

_PLAN_LIMIT_S, _RESUME_LIMIT_S = 5.0, 30.0
_SHARDS_PER_RANK = 4
_NUM_RECEIVERS = 4
_NUM_CONNECTIONS = 16
_NUM_PARAMETERS = 200
_ELEMENTS_PER_RANK = 4096
_NUM_CHECKPOINTS = 2
_FILE_EVENTS = frozenset(
    {"open", "os.listdir", "os.scandir", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.utime"}
)
"""Events of Python's audit that are requests to a file system; the safetensors library's own are not among them."""


@dataclass
class Cost:
    """What a step costs. `own_s` is the processor time of the busiest worker, `calls` are requests to files."""

    wall_s: float
    own_s: float
    calls: int


@dataclass
class Meter:
    """Measures steps; the costs are by step, and in a step by the number of ranks."""

    costs: dict[str, dict[int, list[Cost]]] = field(default_factory=dict)
    calls: int = 0

    def __post_init__(self) -> None:
        sys.addaudithook(self._count)

    def _count(self, event: str, _: tuple[Any, ...]) -> None:
        if event in _FILE_EVENTS:
            self.calls += 1

    def measure(self, step: str, num_ranks: int, act: Callable[[], Any]) -> Any:
        """Run `act` as the step of a single process and return its result."""
        _leave_garbage_behind()
        calls, began_s, own_s = self.calls, time.perf_counter(), time.thread_time()
        result = act()
        self._add(step, num_ranks, time.perf_counter() - began_s, time.thread_time() - own_s, calls)
        return result

    def measure_all(
        self, step: str, num_ranks: int, act: Callable[[int], Any], threads: int | None = None
    ) -> list[Any]:
        """Run `act(rank)` in all ranks, as threads that are joined by collectives, and return their results.

        With `threads`, only the first so many ranks take part.
        """
        _leave_garbage_behind()
        calls, began_s = self.calls, time.perf_counter()
        results, own = run_ranks(threads or num_ranks, act)
        self._add(step, num_ranks, time.perf_counter() - began_s, max(own), calls)
        return results

    def _add(self, step: str, num_ranks: int, wall_s: float, own_s: float, calls: int) -> None:
        cost = Cost(wall_s, own_s, self.calls - calls)
        print(f"{num_ranks} ranks, {step}: {cost}", file=sys.stderr, flush=True)
        self.costs.setdefault(step, {}).setdefault(num_ranks, []).append(cost)


def _leave_garbage_behind() -> None:
    """Take what is alive out of the garbage collector's sight: it is the simulation's, not a step's."""
    gc.collect()
    gc.freeze()


class Group:
    """A process group of threads: what a collective sends is pickled once and unpickled by every receiver."""

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._barrier = threading.Barrier(num_ranks)
        self._sent: list[bytes] = [b""] * num_ranks
        self._local = threading.local()

    def join(self, rank: int) -> None:
        """Make the calling thread a rank."""
        self._local.rank = rank

    def abort(self) -> None:
        """End the waits of all ranks, because one has failed."""
        self._barrier.abort()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let torch.distributed's functions act on this group for the block."""
        with (
            patch.object(dist, "get_rank", lambda: self._local.rank),
            patch.object(dist, "get_world_size", lambda: self._num_ranks),
            patch.object(dist, "broadcast_object_list", self._broadcast),
            patch.object(dist, "scatter_object_list", self._scatter),
            patch.object(dist, "gather_object", self._gather),
        ):
            yield

    def _broadcast(self, objects: list[Any], src: int) -> None:
        if self._local.rank == src:
            self._sent[src] = pickle.dumps(objects)
        self._barrier.wait()
        if self._local.rank != src:
            objects[:] = pickle.loads(self._sent[src])
        self._barrier.wait()

    def _scatter(self, received: list[Any], parts: list[Any] | None, src: int) -> None:
        if parts is not None:
            self._sent = [pickle.dumps(part) for part in parts]
        self._barrier.wait()
        received[:] = [pickle.loads(self._sent[self._local.rank])]
        self._barrier.wait()

    def _gather(self, own: Any, received: list[Any] | None, dst: int) -> None:
        self._sent[self._local.rank] = pickle.dumps(own)
        self._barrier.wait()
        if received is not None:
            received[:] = [pickle.loads(sent) for sent in self._sent]
        self._barrier.wait()


def run_ranks(num_ranks: int, act: Callable[[int], Any]) -> tuple[list[Any], list[float]]:
    """Run `act(rank)` in a thread for each rank; return the results and each thread's processor time."""
    group = Group(num_ranks)
    results: list[Any] = [None] * num_ranks
    own_s, errors = [0.0] * num_ranks, []

    def run(rank: int) -> None:
        group.join(rank)
        began_s = time.thread_time()
        try:
            results[rank] = act(rank)
        except threading.BrokenBarrierError:
            return
        except BaseException as error:
            errors.append(error)
            group.abort()
        own_s[rank] = time.thread_time() - began_s

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(num_ranks)]
    with group.installed():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    return results, own_s


def config_of(num_ranks: int) -> PretrainConfig:
    """The large recipe on that many workers, with a lane for each micro-batch of each worker."""
    config = load_run_config("large").pretrain
    lanes = num_ranks * config.micro_batch_lanes
    return config.model_copy(update={"num_workers": num_ranks, "lanes": lanes, "segment_tokens": 8})


def write_many_shards(folder: Path, num_shards: int) -> None:
    """Write a prep folder whose training split has many shards: names of one and the same."""
    corpus = write_corpus(folder, {"train": stdlib_packages(["tarfile", "string", "csv"])}, block_docs=1)
    (shard,) = corpus.manifest.splits["train"]
    copies = [shard.model_copy(update={"name": f"train-{number:05d}"}) for number in range(num_shards)]
    for copy in copies[1:]:
        for suffix in (".index.json", ".tar"):
            (folder / "shards" / f"{copy.name}{suffix}").hardlink_to(
                folder / "shards" / f"{shard.name}{suffix}"
            )
    (folder / MANIFEST_NAME).unlink()
    splits = {"train": tuple(copies)}
    write_manifest(folder, Manifest.model_validate(corpus.manifest.model_dump() | {"splits": splits}))


def snapshot_of(rank: int, num_ranks: int, step: int) -> Snapshot:
    """A worker's part of a state whose parameters ZeRO has cut into equal parts."""
    total = num_ranks * _ELEMENTS_PER_RANK
    size = -(-total // _NUM_PARAMETERS)
    low, high = rank * _ELEMENTS_PER_RANK, (rank + 1) * _ELEMENTS_PER_RANK
    pieces = []
    for number in range(low // size, -(-high // size)):
        first, last = number * size, min((number + 1) * size, total)
        values = torch.full((min(last, high) - max(first, low),), float(rank))
        pieces.append(Piece(f"parameter-{number:04d}", (last - first,), max(first, low) - first, values))
    memory = SegmentMemory((torch.zeros(1, 4, 8),), torch.zeros(1, 4).long(), torch.zeros(1, 4).long())
    parts = EnginePieces(tuple(pieces), {kind: tuple(pieces) for kind in MOMENTS}, step)
    state = {"rewinds_seen": 0, "spikes": {}, "cursors": []}
    return Snapshot(step, step, parts, memory, rank, state)


def write_parts(checkpoints: Path, num_ranks: int, step: int) -> Path:
    """Write what all workers leave of a checkpoint, without waiting for the disk."""
    folder = temporary_folder(checkpoints, step, "simulated")
    with patch.object(os, "fsync", lambda descriptor: None):
        for rank in range(num_ranks):
            static: StaticFiles | None = STATIC if rank == 0 else None
            RankFiles(folder, rank).write(snapshot_of(rank, num_ranks, step), static)
    return folder


def rendezvous(num_ranks: int) -> None:
    """Let all workers meet at a TCPStore: each says where it is, and reads where one other is.

    A connection serves several workers: their number has its own limits (open files, the resolver of names).
    """
    store = TCPStore("127.0.0.1", 0, num_ranks, is_master=True, wait_for_workers=False)
    clients = [
        TCPStore("127.0.0.1", store.port, num_ranks, is_master=False, wait_for_workers=False)
        for _ in range(min(num_ranks, _NUM_CONNECTIONS))
    ]
    for rank in range(num_ranks):
        clients[rank % len(clients)].set(f"address/{rank}", f"10.0.0.{rank}:1234")
        clients[rank % len(clients)].add("joined", 1)
    for rank in range(num_ranks):
        assert clients[rank % len(clients)].add("joined", 0) == num_ranks
        assert clients[rank % len(clients)].get(f"address/{(rank + 1) % num_ranks}")


def simulate(num_ranks: int, folder: Path, meter: Meter) -> None:
    """Go through the life of a run on so many workers: plan, open, meet, hold, save, resume."""
    run_config, config = load_run_config("large"), config_of(num_ranks)
    planned = run_config.model_copy(update={"pretrain": config})
    meter.measure("plan", num_ranks, lambda: list(plan_lines(planned, None, Assumptions(None, 0.4, None))))

    prep, run_folder = folder / "prep", folder / "run"
    write_many_shards(prep, _SHARDS_PER_RANK * num_ranks)
    run_folder.mkdir()
    # Few receive it here: what one does in parallel to all others does not depend on their number.
    corpora = meter.measure_all(
        "open corpus: one reads the indexes",
        num_ranks,
        lambda rank: agreed(lambda: open_prepared(prep)),
        threads=_NUM_RECEIVERS,
    )
    corpus: PreparedCorpus = corpora[-1]
    reader = meter.measure(
        "order of blocks, in each rank",
        num_ranks,
        lambda: LaneReader(corpus, "train", config.lanes, config.segment_tokens, seed=1),
    )
    assert reader.num_tokens > 0

    meter.measure("rendezvous: TCPStore", num_ranks, lambda: rendezvous(num_ranks))
    with HeldLease(run_folder) as held:
        meter.measure(
            "lease: all ranks read it once",
            num_ranks,
            lambda: [held.lease.is_held() for _ in range(num_ranks)],
        )

    checkpoints = run_folder / "checkpoints"
    for step in range(1, _NUM_CHECKPOINTS + 1):
        temporary = write_parts(checkpoints, num_ranks, step)
        final = checkpoints / step_name(step)
        gather = partial(gather_parts, temporary, num_ranks, 60.0, None)
        files = meter.measure("commit: gather parts", num_ranks, gather)
        meter.measure(
            "commit: publish", num_ranks, partial(publish, temporary, final, step, files, num_ranks)
        )
    meter.measure(
        "list checkpoints: which to keep",
        num_ranks,
        lambda: superseded_checkpoints(checkpoints, CheckpointConfig(keep=2), _NUM_CHECKPOINTS, frozenset()),
    )
    meter.measure("list outputs before a restart", num_ranks, lambda: lasting_outputs(run_folder))
    _resume(num_ranks, Run(config, 1, prep, run_folder), meter)
    _watch(num_ranks, run_folder, meter)


def _resume(num_ranks: int, run: Run, meter: Meter) -> None:
    """Damage the newest checkpoint, so that all have to go back to the one before it together."""
    newest = run.checkpoints / step_name(_NUM_CHECKPOINTS)
    damaged = newest / f"optimizer-{num_ranks // 2:05d}.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with closing(Journal(run.journal)) as journal:

        def decide(rank: int) -> Path:
            found = prepare_resume(run, Recorder(journal if rank == 0 else None)).checkpoint
            assert found is not None
            return found

        found = meter.measure_all("resume decision, one of two damaged", num_ranks, decide)
    assert set(found) == {run.checkpoints / step_name(_NUM_CHECKPOINTS - 1)}, set(found)

    def load(rank: int) -> None:
        stored = CheckpointTensors.opened_for_all(found[rank])
        own = snapshot_of(rank, num_ranks, _NUM_CHECKPOINTS - 1).pieces.masters
        for piece in own:
            stop = piece.start + len(piece.values_X)
            for kind in MOMENTS:
                assert torch.equal(stored.moment_part(kind, piece.name, piece.start, stop), piece.values_X)
        stored.memory(range(rank, rank + 1))

    meter.measure_all("load: own moments and memory", num_ranks, load, threads=_NUM_RECEIVERS)


def _watch(num_ranks: int, folder: Path, meter: Meter) -> None:
    dogs = [Watchdog(folder, rank, num_ranks, hang_timeout_s=600) for rank in range(num_ranks)]

    def write_all() -> None:
        for dog in dogs:
            dog.write_progress()

    meter.measure("progress: all ranks write it once", num_ranks, write_all)
    meter.measure("hang: verdict from all progress", num_ranks, dogs[0].verdict)


def fitted_exponent(ranks: Sequence[int], values: Sequence[float]) -> float:
    """Return the slope of log(value) over log(ranks), by least squares."""
    xs, ys = [math.log(n) for n in ranks], [math.log(max(value, 1e-9)) for value in values]
    return statistics.linear_regression(xs, ys).slope


def table(meter: Meter, ranks: Sequence[int]) -> list[str]:
    """Return the lines of a table: the least of the rounds for each number of ranks, and the fitted exponents.

    What else runs on the machine makes times longer, never shorter.
    """
    sizes = " | ".join(f"{n:,} ranks" for n in ranks)
    lines = [
        f"| step | {sizes} | time ~ n^ | file calls at {ranks[-1]:,} | calls ~ n^ |",
        "|---|" + "---|" * (len(ranks) + 3),
    ]
    for step, costs in meter.costs.items():
        own = [min(cost.own_s for cost in costs[n]) for n in ranks]
        wall = [min(cost.wall_s for cost in costs[n]) for n in ranks]
        calls = [statistics.median(cost.calls for cost in costs[n]) for n in ranks]
        cells = " | ".join(f"{one:.3f} ({whole:.2f})" for one, whole in zip(own, wall, strict=True))
        grows = f"{fitted_exponent(ranks, calls):.2f}" if min(calls) > 0 else "-"
        lines.append(f"| {step} | {cells} | {fitted_exponent(ranks, own):.2f} | {calls[-1]:,.0f} | {grows} |")
    return lines


def _simulate_in(parent: Path | None, num_ranks: int, meter: Meter) -> None:
    folder = Path(tempfile.mkdtemp(dir=parent))
    try:
        simulate(num_ranks, folder, meter)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def hash_speed() -> float:
    """Return the bytes per second that one core hashes with SHA-256."""
    data = bytes(64 << 20)
    began_s = time.perf_counter()
    hashlib.sha256(data).digest()
    return len(data) / (time.perf_counter() - began_s)


def main() -> None:
    """Simulate all sizes several times and print the table."""
    arguments = _arguments()
    meter = Meter()
    torch.set_num_threads(1)
    threading.stack_size(512 << 10)
    _simulate_in(arguments.folder, 8, Meter())  # imports what is imported at first use
    for _ in range(arguments.rounds):
        for num_ranks in arguments.ranks:
            _simulate_in(arguments.folder, num_ranks, meter)
    print(
        "Seconds of the busiest rank's processor time (in brackets: wall time of all ranks on this machine)\n"
    )
    print("\n".join(table(meter, arguments.ranks)))
    most = arguments.ranks[-1]
    plan_s = max(cost.wall_s for cost in meter.costs["plan"][most])
    resume_s = max(cost.wall_s for cost in meter.costs["resume decision, one of two damaged"][most])
    print(
        f"\nplan {plan_s:.2f} s of {_PLAN_LIMIT_S:g}; resume decision {resume_s:.2f} s of {_RESUME_LIMIT_S:g}"
    )
    print(f"one core hashes {hash_speed() / 1e9:.2f} GB/s")
    if plan_s > _PLAN_LIMIT_S or resume_s > _RESUME_LIMIT_S:
        sys.exit(1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[128, 256, 512, 1024])
    parser.add_argument(
        "--folder", type=Path, help="where the files are written; default: the temporary folder"
    )
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
