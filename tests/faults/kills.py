"""Killing training runs at named points or at any moment, and starting them again."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cluster.journal import read_journal
from data_prep.finished.prepared import open_prepared
from pretrain.audit import audit, check_digests, read_history
from pretrain.config import PretrainConfig
from pretrain.data.lanes import LaneReader
from tests.distributed.workers import Workers, small_config

KILLED = -9
_PATIENCE_S = 120


@dataclass(frozen=True)
class Run:
    """One training run in `folder` that is started as often as it takes."""

    folder: Path
    prep_folder: Path
    config: PretrainConfig = field(
        default_factory=lambda: small_config(num_steps=6, checkpoint={"every_steps": 2})
    )
    world_size: int = 2

    def start(self, **environment: str) -> Workers:
        """All ranks, once more."""
        return Workers(self.config, self.prep_folder, self.folder, self.world_size, environment=environment)

    def finish(self) -> str:
        """Let it end; the last checkpoint's SHA-256 over weights, optimizer, memory and cursor."""
        from tests.distributed.workers import final_state

        self.start().wait()
        return final_state(self.folder, self.config.num_steps)

    def kill_at(self, point: str) -> bool:
        """Start it, let the process that comes to `point` kill itself, kill the others as a scheduler would.

        False when it ended before anybody came there.
        """
        workers = self.start(PERMCODE_FAULT=point)
        deadline_s = time.monotonic() + _PATIENCE_S
        codes: list[int | None] = [None]
        while None in codes and not any(codes) and time.monotonic() < deadline_s:
            codes = [process.poll() for process in workers.processes]
            time.sleep(0.002)
        workers.kill()
        logs = "".join(f"\nrank {rank}: {workers.log(rank)[-2000:]}" for rank in range(self.world_size))
        assert any(codes) or None not in codes, f"{point}: nobody came there and nobody ended{logs}"
        # On a busy machine the others may have lost the killed one before they are killed here.
        assert KILLED in codes or not any(codes), f"{point}: ended with {codes}{logs}"
        return KILLED in codes

    def kill_after(self, delay_s: float, ranks: Sequence[int]) -> bool:
        """Start it and kill `ranks` so long after, then the others; False when it had ended by itself."""
        workers = self.start()
        time.sleep(delay_s)
        had_ended = all(process.poll() is not None for process in workers.processes)
        for rank in ranks:
            workers.processes[rank].kill()
        workers.kill()
        return not had_ended

    def problems(self) -> list[str]:
        """What is wrong with its books: lost, repeated or other tokens, restarts that nobody wrote down."""
        reader = LaneReader(
            open_prepared(self.prep_folder), "train", self.config.lanes, self.config.segment_tokens, seed=3
        )
        books = read_history(read_journal(self.folder / "journal.jsonl"))
        found = audit(books, reader)
        if found.num_steps != self.config.num_steps:
            found.problems.append(f"{found.num_steps} steps in the books")
        return [*found.problems, *check_digests(books, reader, list(books.steps))]

    def num_starts_reported(self) -> int:
        """How often the journal says that a process began."""
        return sum(record.name == "attempt" for record in read_journal(self.folder / "journal.jsonl"))


def recorded_points(run: Run, log: Path) -> list[str]:
    """Every fault point that an untouched run comes to, as NAME:COUNT:RANK; also finishes that run."""
    run.start(PERMCODE_FAULT_LOG=str(log)).wait()
    return sorted(set(log.read_text().split()))
