"""Verification of checkpoints: their checksums, and the newest one that is valid."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import UserError
from cluster.storage import sha256_file
from pretrain.checkpoint.listing import FileEntry, NewerFormatError, read_listing, step_folders, step_of


@dataclass(frozen=True)
class Damaged:
    """A damaged checkpoint, which was skipped."""

    checkpoint: str
    """The folder's name."""
    problem: str

    def __str__(self) -> str:
        return f"checkpoint {self.checkpoint}: {self.problem}; trying the one before it"


def find_damage(folder: Path) -> str | None:
    """Hash all files of a checkpoint, several at a time, and return what is wrong with it; None if nothing is.

    Raises NewerFormatError.
    """
    try:
        listing = read_listing(folder)
    except NewerFormatError:
        raise
    except UserError as error:
        return str(error)
    damaged = damaged_files(folder, listing.files, os.cpu_count() or 1)
    return problem_with(folder, damaged[0]) if damaged else None


def damaged_files(folder: Path, files: Mapping[str, FileEntry], num_threads: int) -> list[str]:
    """Hash these files of a checkpoint, and return the names of those that are missing or damaged, sorted."""
    # Big files first, so that no thread is left with one at the end.
    names = sorted(files, key=lambda name: -files[name].size_bytes)
    with ThreadPoolExecutor(max_workers=min(len(names) or 1, num_threads)) as threads:
        are_intact = threads.map(lambda name: _is_intact(folder / name, files[name]), names)
        return sorted(name for name, is_intact in zip(names, are_intact, strict=True) if not is_intact)


def problem_with(folder: Path, name: str) -> str:
    """Return what is wrong with a damaged file of a checkpoint."""
    if not (folder / name).is_file():
        return f"{name} is missing"
    return f"{name} is damaged (checksum differs)"


def _is_intact(path: Path, entry: FileEntry) -> bool:
    try:
        return path.stat().st_size == entry.size_bytes and sha256_file(path) == entry.sha256
    except OSError:
        return False


def newest_valid(
    checkpoints: Path, on_damaged: Callable[[Damaged], None], up_to_step: int | None = None
) -> Path | None:
    """Return the newest valid checkpoint, of those up to `up_to_step`; None when there is no checkpoint at all.

    `on_damaged` is called with every damaged one that is skipped. Raises UserError when there are checkpoints and none
    is valid, because starting again from step 0 would hide the loss, and when one was made by a newer permcode.
    """
    damaged: list[Damaged] = []
    for folder in step_folders(checkpoints):
        if up_to_step is not None and (step_of(folder) or 0) > up_to_step:
            continue
        problem = find_damage(folder)
        if problem is None:
            return folder
        if folder.is_dir():  # else a run in progress has just removed it
            damaged.append(Damaged(folder.name, problem))
            on_damaged(damaged[-1])
    if damaged:
        raise none_is_valid(checkpoints, damaged)
    return None


def none_is_valid(checkpoints: Path, damaged: Sequence[Damaged]) -> UserError:
    """Return the error when all checkpoints are damaged, given the newest first."""
    return UserError(
        f"{checkpoints}: none of {len(damaged)} checkpoints is valid (the newest: {damaged[0].problem}): "
        "restore one, or remove the folder to start from step 0"
    )


def last_valid_before(checkpoints: Path, step: int) -> Path | None:
    """Return the newest valid checkpoint of a state before `step` (counted from 1), None if there is none."""
    candidates = (folder for folder in step_folders(checkpoints) if (step_of(folder) or 0) < step)
    return next((folder for folder in candidates if find_damage(folder) is None), None)
