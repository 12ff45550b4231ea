"""The files of each rank, and how rank 0 makes them one checkpoint without a collective.

Every rank writes its files into a temporary folder, with `.part-RRRRR.json` as the last one. A rank that fails leaves
`.failed-RRRRR` instead. Rank 0 waits for these, lists all files in COMMIT.json and renames the folder.
"""

import os
import re
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

_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.02, 1.0
_PAUSE_SHARE = 0.1
"""The share of the time waited so far that rank 0 pauses between two looks, so a look comes late by that much."""
_PART_NAME = re.compile(r"\.part-(\d{5,})\.json")
_FAILURE_NAME = re.compile(r"\.failed-(\d{5,})")


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
    began_s = time.monotonic()
    waited_for = set(range(num_ranks)) - ({0} if own_problem else set())
    parts: dict[int, dict[str, FileEntry]] = {}
    while True:
        listed = _LeftFiles.of(folder)
        for rank in listed.parts & waited_for - parts.keys() - listed.failures:
            parts[rank] = _read_part(folder / _part_name(rank))
        waited_s = time.monotonic() - began_s
        if waited_for <= parts.keys() | listed.failures or waited_s >= timeout_s:
            break
        pause_s = min(max(_FIRST_PAUSE_S, _PAUSE_SHARE * waited_s), _LAST_PAUSE_S)
        time.sleep(min(pause_s, timeout_s - waited_s))
    if own_problem:
        raise SaveError(f"worker 0: {own_problem}")
    files: dict[str, FileEntry] = {}
    for rank in range(num_ranks):
        if rank in listed.failures:
            problem = (folder / _failure_name(rank)).read_text(encoding="utf-8")
            raise SaveError(f"worker {rank}: {problem or 'no room to say why'}")
        if rank not in parts:
            raise SaveError(f"worker {rank} has not written its files within {timeout_s:g} s")
        files |= parts[rank]
    return files


@dataclass(frozen=True)
class _LeftFiles:
    """The ranks that have left their list of files or a failure, as one listing of the folder shows them."""

    parts: frozenset[int]
    failures: frozenset[int]

    @classmethod
    def of(cls, folder: Path) -> "_LeftFiles":
        """List the folder, once for all ranks: two questions for each would be as many requests to a file server."""
        try:
            names = os.listdir(folder)
        except FileNotFoundError:  # no rank has begun
            names = []
        return cls(_ranks_in(names, _PART_NAME), _ranks_in(names, _FAILURE_NAME))


def _ranks_in(names: list[str], pattern: re.Pattern[str]) -> frozenset[int]:
    return frozenset(int(matched[1]) for name in names if (matched := pattern.fullmatch(name)))


def _read_part(path: Path) -> dict[str, FileEntry]:
    return {name: FileEntry.from_json(entry) for name, entry in read_json(path).items()}


def drop_parts(folder: Path, num_ranks: int) -> None:
    """Remove the lists of the ranks, which COMMIT.json replaces. Raises OSError."""
    for rank in range(num_ranks):
        (folder / _part_name(rank)).unlink()


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
