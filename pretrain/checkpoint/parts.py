"""The files of one rank in a commit, and how rank 0 learns without a collective that they are all there.

A rank that has written its files leaves `.part-RRRRR.json` beside them, one that could not `.failed-RRRRR`.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cluster.fault_points import fault_point
from cluster.storage import document_bytes, read_json, write_json
from pretrain.checkpoint.files import FileEntry, write_hashed
from pretrain.checkpoint.finding import STATE_NAME
from pretrain.checkpoint.listing import FORMAT
from pretrain.checkpoint.memory_files import memory_name, write_memory
from pretrain.checkpoint.piece_files import write_pieces
from pretrain.checkpoint.snapshot import Snapshot, StaticFiles
from pretrain.engine.pieces import MOMENTS

_POLL_S = 0.02


class SaveError(Exception):
    """A commit could not be made; the message says why in one line."""


@dataclass(frozen=True)
class RankFiles:
    """Where a rank writes: names carry the rank or its first lane, so no two ranks write one file."""

    folder: Path
    rank: int

    def write(self, snapshot: Snapshot, static: StaticFiles | None) -> None:
        """All files of this rank, then its word that they are there. Raises OSError or UserError (disk full)."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fault_point("commit.folder_made")
        files = {path.name: entry for path, entry in self._written(snapshot, static)}
        write_json(
            self.folder / _part_name(self.rank), {name: entry.to_json() for name, entry in files.items()}
        )
        fault_point("commit.part_left")

    def tell_failure(self, problem: str) -> None:
        """Make room, then say so; a disk that cannot take even that leaves it to rank 0's limit of time."""
        with suppress(OSError):
            for name in self._tensor_names():
                for path in self.folder.glob(name):
                    path.unlink()
            (self.folder / _failure_name(self.rank)).write_text(problem, encoding="utf-8")

    def _tensor_names(self) -> tuple[str, str]:
        return f"weights-{self.rank:05d}.safetensors", f"optimizer-{self.rank:05d}.safetensors"

    def _written(self, snapshot: Snapshot, static: StaticFiles | None) -> Iterator[tuple[Path, FileEntry]]:
        weights, optimizer = (self.folder / name for name in self._tensor_names())
        yield weights, write_pieces(weights, {"": snapshot.pieces.masters})
        moments = {f"{kind}.": snapshot.pieces.moments[kind] for kind in MOMENTS}
        yield optimizer, write_pieces(optimizer, moments)
        if snapshot.memory is not None:
            memory = self.folder / memory_name(snapshot.first_lane)
            yield memory, write_memory(memory, snapshot.memory)
        if static is not None:
            for name, data in _small_files(snapshot, static).items():
                yield self.folder / name, write_hashed(self.folder / name, [data])


def _small_files(snapshot: Snapshot, static: StaticFiles) -> dict[str, bytes]:
    state = snapshot.state | {
        "format": FORMAT,
        "step": snapshot.step,
        "cursor": snapshot.cursor,
        "adam_steps": snapshot.pieces.adam_steps,
    }
    return {STATE_NAME: document_bytes(state), **static.files}


def gather_parts(
    folder: Path, num_ranks: int, timeout_s: float, own_problem: str | None
) -> dict[str, FileEntry]:
    """All files of all ranks, as they told them; for rank 0, which waits until each has.

    `own_problem` is why rank 0's own files could not be written. Raises SaveError when a rank's could not, or do not
    come within `timeout_s`.
    """
    deadline_s = time.monotonic() + timeout_s
    waited_for = set(range(num_ranks)) - ({0} if own_problem else set())
    while waited_for := {rank for rank in waited_for if not _has_told(folder, rank)}:
        if time.monotonic() >= deadline_s:
            break
        time.sleep(_POLL_S)
    if own_problem:
        raise SaveError(f"worker 0: {own_problem}")
    files: dict[str, FileEntry] = {}
    for rank in range(num_ranks):
        failure, part = folder / _failure_name(rank), folder / _part_name(rank)
        if failure.exists():
            raise SaveError(f"worker {rank}: {failure.read_text(encoding='utf-8') or 'no room to say why'}")
        if rank in waited_for:
            raise SaveError(f"worker {rank} has not written its files within {timeout_s:g} s")
        files |= {name: FileEntry.from_json(entry) for name, entry in read_json(part).items()}
    return files


def drop_parts(folder: Path, num_ranks: int) -> None:
    """The ranks' words have gone into COMMIT.json. Raises OSError."""
    for rank in range(num_ranks):
        (folder / _part_name(rank)).unlink()


def _has_told(folder: Path, rank: int) -> bool:
    return (folder / _part_name(rank)).exists() or (folder / _failure_name(rank)).exists()


def _part_name(rank: int) -> str:
    return f".part-{rank:05d}.json"


def _failure_name(rank: int) -> str:
    return f".failed-{rank:05d}"
