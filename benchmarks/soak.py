"""Kill training processes at random for as long as asked, and check that every token was consumed exactly once.

    python -m benchmarks.soak [--kills 300] [--minutes 0] [--ranks 16] [--per-node 4] [--seed 0]

A tiny model on gloo processes of this machine, `pretrain.worker.train` in each, started by the tests' fork server. At
random moments, also of the start, a rank or all ranks of a pretended node get SIGKILL. How long the others take to
notice is timed; those that do not are ended, too, and all are started again. At the end the run is stopped with a
checkpoint and audited: every step's tokens are read again from the shards and compared with the journal. The exit code
is 1 for any problem.
"""

import argparse
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cluster.heartbeat import last_beat_s
from cluster.journal import read_journal
from data_prep.finished.prepared import open_prepared
from pretrain.audit import audit, check_digests, missing_steps, read_history
from pretrain.checkpoint.listing import step_folders
from pretrain.config import PretrainConfig
from pretrain.data.lanes import LaneReader
from pretrain.files import PretrainFiles
from pretrain.goodput import LABELS, goodput
from pretrain.journal.events import Start, event_of
from tests.distributed.fork_server import Worker, start_ranks
from tests.distributed.workers import small_config
from tests.example_corpus import stdlib_packages, write_corpus

_NOTICE_TIMEOUT_S = 5.0
"""How long the others may take to notice by themselves. Before they have met they cannot: then the launcher ends them,
as Ray does when it has lost one of a group."""
_END_TIMEOUT_S = 300.0
_SEED = 3
"""The seed that the workers of `tests.distributed.train_main` train with."""


@dataclass(frozen=True)
class Shape:
    """How many processes there are, and how they are killed."""

    num_ranks: int
    ranks_per_node: int
    mean_life_s: float
    """The mean time from a start to the kill; the times are exponentially distributed."""


@dataclass
class Kill:
    """One kill and what the restart after it cost, in seconds; None for what was not reached before the next kill."""

    after_s: float
    ranks: list[int]
    detect_s: float
    num_helped: int
    """Processes that did not notice in time and were killed by the soak."""


@dataclass
class Soak:
    """A run that is killed again and again."""

    folder: Path
    prep: Path
    config: PretrainConfig
    shape: Shape
    draw: random.Random
    kills: list[Kill] = field(default_factory=list)
    started_s: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def run(self) -> Path:
        """The folder of the training."""
        return self.folder / "run"

    def start(self) -> list[Worker]:
        """Start all ranks."""
        settings = {
            "config": self.config.model_dump(mode="json"), "prep_folder": str(self.prep), "folder": str(self.run),
            "fault": None, "accepted": (), "attempt": len(self.started_s),
        }  # fmt: skip
        self.started_s.append(time.time())
        # With fewer local processes than the world has, DeepSpeed does not take its path through shared memory, in
        # which the others would not notice that a process has died: as between nodes.
        environment = {"LOCAL_SIZE": str(self.shape.ranks_per_node)}
        logs = str(self.folder / "worker-{}.log")
        return start_ranks("soak_main", settings, self.shape.num_ranks, logs, environment)

    def kill_one(self) -> None:
        """Start the ranks, kill some of them at a random moment and wait until the others have ended."""
        workers = self.start()
        after_s = self.draw.expovariate(1 / self.shape.mean_life_s)
        time.sleep(after_s)
        ended = [rank for rank, worker in enumerate(workers) if worker.poll() is not None]
        if ended:
            log = (self.folder / f"worker-{ended[0]}.log").read_text(errors="replace")[-1500:]
            self.problems.append(f"rank {ended[0]} ended before it was killed: {log}")
        victims = self._victims()
        killed_s = time.monotonic()
        for rank in victims:
            workers[rank].kill()
        num_helped = self._wait_for_all(workers)
        self.kills.append(Kill(after_s, victims, time.monotonic() - killed_s, num_helped))

    def _victims(self) -> list[int]:
        if self.draw.random() < 0.5:
            return [self.draw.randrange(self.shape.num_ranks)]
        first = (
            self.draw.randrange(self.shape.num_ranks // self.shape.ranks_per_node) * self.shape.ranks_per_node
        )
        return list(range(first, first + self.shape.ranks_per_node))

    def _wait_for_all(self, workers: list[Worker]) -> int:
        deadline_s = time.monotonic() + _NOTICE_TIMEOUT_S
        while any(worker.poll() is None for worker in workers) and time.monotonic() < deadline_s:
            time.sleep(0.01)
        left = [worker for worker in workers if worker.poll() is None]
        for worker in left:
            worker.kill()
        for worker in left:
            worker.wait()
        return len(left)

    def finish(self) -> None:
        """Start once more, ask for a stop after some steps, and wait for the checkpoint."""
        workers = self.start()
        before = len(read_journal(self.run / PretrainFiles.JOURNAL))
        deadline_s = time.monotonic() + _END_TIMEOUT_S
        while len(read_journal(self.run / PretrainFiles.JOURNAL)) < before + 20:
            if time.monotonic() > deadline_s or any(worker.poll() for worker in workers):
                break
            time.sleep(0.2)
        (self.run / PretrainFiles.STOP).touch()
        codes = [worker.wait(_END_TIMEOUT_S) for worker in workers]
        if any(codes):
            self.problems.append(f"the last attempt ended with {codes}")

    def audit(self) -> list[str]:
        """Return what is wrong with the books: tokens read twice, not at all or otherwise than the shards hold."""
        history = read_history(read_journal(self.run / PretrainFiles.JOURNAL))
        reader = LaneReader(
            open_prepared(self.prep), "train", self.config.lanes, self.config.segment_tokens, seed=_SEED
        )
        found = audit(history, reader)
        return [
            *self.problems,
            *found.problems,
            *missing_steps(history, step_folders(self.run / PretrainFiles.CHECKPOINTS)),
            *check_digests(history, reader, list(history.steps)),
        ]

    def print_costs(self) -> None:
        """Print what was killed, the share of committed steps and what the restarts cost."""
        records = read_journal(self.run / PretrainFiles.JOURNAL)
        history = read_history(records)
        made = history.last_step + history.num_remade
        hit = Counter(len(kill.ranks) for kill in self.kills)
        print(
            f"{len(self.kills)} kills in {(time.time() - self.started_s[0]) / 60:.1f} min: {hit[1]} of one rank, "
            f"{hit[self.shape.ranks_per_node]} of a node; {sum(len(kill.ranks) for kill in self.kills)} processes; "
            f"{sum(kill.num_helped for kill in self.kills)} others did not notice within {_NOTICE_TIMEOUT_S:g} s"
        )
        print(
            f"{history.num_attempts} of {len(self.started_s)} attempts came to steps; {history.last_step} steps "
            f"committed of {made} made: {history.last_step / max(made, 1):.1%}"
        )
        used = goodput(records, last_beat_s(self.run / PretrainFiles.HEARTBEAT), time.time())
        print("wall time: " + ", ".join(f"{LABELS[name]} {part:.1%}" for name, part in used.shares().items()))
        print("\n| cost of a kill | median s | mean s | most s | measured in |\n|---|---|---|---|---|")
        for name, values in self._costs(records, used.parts.lost_s).items():
            if values:
                print(
                    f"| {name} | {statistics.median(values):.2f} | {statistics.mean(values):.2f} | "
                    f"{max(values):.2f} | {len(values)} |"
                )

    def _costs(self, records: list[Any], lost_s: float) -> dict[str, list[float]]:
        """Return the seconds of each part of a restart, of all attempts that came through it."""
        costs: dict[str, list[float]] = {"detect": [kill.detect_s for kill in self.kills]}
        costs |= {name: [] for name in ("rendezvous", "choose the checkpoint", "load", "other start-up")}
        starts_s = [record.time_s for record in records if isinstance(event_of(record), Start)]
        for number, began_s in enumerate(self.started_s):
            ended_s = self.started_s[number + 1] if number + 1 < len(self.started_s) else time.time()
            parts = self._parts(number)
            known = {"rendezvous": "rendezvous", "choose": "choose the checkpoint", "load": "load"}
            for part, name in known.items():
                if part in parts:
                    costs[name].append(parts[part])
            stepped = [start_s for start_s in starts_s if began_s < start_s < ended_s]
            if stepped and set(parts) >= set(known):
                costs["other start-up"].append(stepped[0] - began_s - sum(parts[part] for part in known))
        costs["rework (mean of all kills)"] = [lost_s / max(len(self.kills), 1)]
        return costs

    def _parts(self, number: int) -> dict[str, float]:
        """Return the longest time of any rank in each part of an attempt's start that all ranks came through."""
        path = self.folder / f"times-{number:04d}.jsonl"
        if not path.exists():
            return {}
        lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
        by_part: dict[str, list[float]] = {}
        for line in lines:
            by_part.setdefault(line["part"], []).append(line["ended_s"] - line["began_s"])
        return {part: max(times) for part, times in by_part.items() if len(times) == self.shape.num_ranks}


def main() -> None:
    """Kill as often or as long as asked, then audit."""
    arguments = _arguments()
    shape = Shape(arguments.ranks, arguments.per_node, arguments.mean_life_s)
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    splits = {"train": ["string", "heapq", "csv"], "validation": ["fnmatch"], "test": ["bisect"]}
    write_corpus(folder / "prep", {split: stdlib_packages(modules) for split, modules in splits.items()})
    config = small_config(
        num_steps=1_000_000,
        lanes=shape.num_ranks,
        micro_batch_lanes=1,
        num_workers=shape.num_ranks,
        checkpoint={"every_steps": arguments.every_steps},
        validation={"every_steps": 10_000_000, "during_tokens": 128, "final_tokens": 256},
    )
    soak = Soak(folder, folder / "prep", config, shape, random.Random(arguments.seed))
    deadline_s = time.monotonic() + 60 * arguments.minutes if arguments.minutes else float("inf")
    while len(soak.kills) < arguments.kills and time.monotonic() < deadline_s:
        soak.kill_one()
        (folder / "kills.json").write_text(json.dumps([asdict(kill) for kill in soak.kills]))
        print(f"kill {len(soak.kills)}: {soak.kills[-1]}", file=sys.stderr, flush=True)
    soak.finish()
    soak.print_costs()
    problems = soak.audit()
    print("\naudit: " + ("every token exactly once" if not problems else f"{len(problems)} problems"))
    print("\n".join(problems[:20]))
    if problems:
        sys.exit(f"see {folder}")
    shutil.rmtree(folder)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=0.0, help="the most time for the kills; 0: no limit")
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--per-node", type=int, default=4, help="ranks of a pretended node")
    parser.add_argument("--mean-life-s", type=float, default=15.0, help="mean time from a start to its kill")
    parser.add_argument("--every-steps", type=int, default=10, help="steps between two checkpoints")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--folder", type=Path, help="where the run's folder is made; default: the temporary folder"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
