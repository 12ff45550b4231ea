"""The files of each rank, and how rank 0 makes them one checkpoint without a collective.

Every rank writes its files into a temporary folder, with `.part-RRRRR.json` as the last one. A rank that fails leaves
`.failed-RRRRR` instead. Rank 0 waits for these, lists all files in COMMIT.json and renames the folder.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cluster.fault_points import fault_point
from cluster.storage import document_bytes, fsync_folder, read_json, write_json
from pretrain.checkpoint.listing import FORMAT, STATE_NAME, FileEntry, Listing, step_name
from pretrain.checkpoint.memory_files import memory_name, write_memory
from pretrain.checkpoint.retention import remove_checkpoint
from pretrain.checkpoint.snapshot import Snapshot, StaticFiles
from pretrain.checkpoint.tensor_files import write_hashed, write_pieces
from pretrain.engine.pieces import MOMENTS

_POLL_S = 0.02


class SaveError(Exception):
    """A checkpoint could not be written; the message is one line."""


@dataclass(frozen=True)
class RankFiles:
    """The files of one rank: names contain the rank or its first lane, so no two ranks write the same file."""

    folder: Path
    rank: int

    def write(self, snapshot: Snapshot, static: StaticFiles | None) -> None:
        """Write all files of this rank, then the list of them. Raises OSError or UserError (disk full)."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fault_point("checkpoint.folder_made")
        files = {path.name: entry for path, entry in self._written(snapshot, static)}
        write_json(
            self.folder / _part_name(self.rank), {name: entry.to_json() for name, entry in files.items()}
        )
        fault_point("checkpoint.part_left")

    def report_failure(self, problem: str) -> None:
        """Remove the tensor files to make room, and leave `problem` for rank 0, which otherwise waits in vain."""
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
            state = snapshot.state | {
                "format": FORMAT,
                "step": snapshot.step,
                "cursor": snapshot.cursor,
                "adam_steps": snapshot.pieces.adam_steps,
            }
            for name, data in {STATE_NAME: document_bytes(state), **static.files}.items():
                yield self.folder / name, write_hashed(self.folder / name, [data])


def gather_parts(
    folder: Path, num_ranks: int, timeout_s: float, own_problem: str | None
) -> dict[str, FileEntry]:
    """Wait in rank 0 for the lists of all ranks, and return their files together.

    `own_problem` is why rank 0 could not write its own files. Raises SaveError when a rank failed or did not finish
    within `timeout_s`.
    """
    deadline_s = time.monotonic() + timeout_s
    waited_for = set(range(num_ranks)) - ({0} if own_problem else set())
    while waited_for := {rank for rank in waited_for if not _is_done(folder, rank)}:
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
    """Remove the lists of the ranks, which COMMIT.json replaces. Raises OSError."""
    for rank in range(num_ranks):
        (folder / _part_name(rank)).unlink()


def _is_done(folder: Path, rank: int) -> bool:
    return (folder / _part_name(rank)).exists() or (folder / _failure_name(rank)).exists()


def _part_name(rank: int) -> str:
    return f".part-{rank:05d}.json"


def _failure_name(rank: int) -> str:
    return f".failed-{rank:05d}"


def temporary_folder(checkpoints: Path, step: int, token: str) -> Path:
    """Return the folder that the ranks write a checkpoint into. `token` keeps the folders of several attempts apart."""
    return checkpoints / f".{step_name(step)}.{token}.tmp"


def publish(temporary: Path, final: Path, step: int, files: dict[str, FileEntry], num_ranks: int) -> Listing:
    """Write COMMIT.json, sync all to disk and rename the folder.

    A checkpoint of that name must be a damaged one that was skipped: an older valid one exists, so a kill between the
    two renames loses nothing. Raises OSError, or UserError when the disk is full.
    """
    fault_point("checkpoint.parts_found")
    drop_parts(temporary, num_ranks)
    listing = Listing(step, files)
    listing.write(temporary)
    fault_point("checkpoint.listed")
    fsync_folder(temporary)
    fault_point("checkpoint.folder_synced")
    if final.exists():
        remove_checkpoint(final)
        fault_point("checkpoint.damaged_moved")
    os.rename(temporary, final)
    fault_point("checkpoint.renamed")
    fsync_folder(final.parent)
    fsync_folder(final.parent.parent)  # the first checkpoint creates its folder
    fault_point("checkpoint.published")
    return listing


def abandon(temporary: Path) -> None:
    """Remove what was written of a failed checkpoint; a rank may still be writing there."""
    shutil.rmtree(temporary, ignore_errors=True)
