"""Which commits there are, which of them can be used, and which is the best."""

import math
import os
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import UserError
from cluster.fault_points import fault_point
from cluster.storage import fsync_folder, read_document, sha256_file
from pretrain.checkpoint.listing import NewerFormatError, read_listing, step_folders, step_of

STATE_NAME = "state.json"
VALIDATION = "validation_bits_per_byte"
"""Key of state.json, there when an evaluation was made at the commit's step."""


@dataclass(frozen=True)
class Damaged:
    """A commit that was passed over."""

    commit: str
    """Its folder's name."""
    problem: str

    def __str__(self) -> str:
        return f"checkpoint {self.commit}: {self.problem}; trying the one before it"


def problem_of(folder: Path) -> str | None:
    """Why a commit cannot be used, or None: every file of it is hashed, several at a time.

    Raises NewerFormatError.
    """
    try:
        listing = read_listing(folder)
    except NewerFormatError:
        raise
    except UserError as error:
        return str(error)
    # Big files first, so that no thread is left with one at the end.
    names = sorted(listing.files, key=lambda name: -listing.files[name].size_bytes)
    with ThreadPoolExecutor(max_workers=min(len(names) or 1, os.cpu_count() or 1)) as threads:
        sound = threads.map(
            lambda name: _is_sound(folder / name, listing.files[name].size_bytes, listing.files[name].sha256),
            names,
        )
        damaged = sorted(name for name, is_sound in zip(names, sound, strict=True) if not is_sound)
    if not damaged:
        return None
    if not (folder / damaged[0]).is_file():
        return f"{damaged[0]} is missing"
    return f"{damaged[0]} is damaged (checksum differs)"


def _is_sound(path: Path, size_bytes: int, sha256: str) -> bool:
    try:
        return path.stat().st_size == size_bytes and sha256_file(path) == sha256
    except OSError:
        return False


def newest_valid(
    checkpoints: Path, on_damaged: Callable[[Damaged], None], up_to_step: int | None = None
) -> Path | None:
    """The newest commit (of those up to a step) whose files all have their checksums, None when there never was one.

    Every damaged one passed over is told to `on_damaged`. Raises UserError when there are commits and none is
    valid, for starting again from step 0 would hide the loss, and when one was made by a newer permcode.
    """
    damaged: list[Damaged] = []
    for folder in step_folders(checkpoints):
        if up_to_step is not None and (step_of(folder) or 0) > up_to_step:
            continue
        problem = problem_of(folder)
        if problem is None:
            return folder
        if folder.is_dir():  # else a run in progress has just dropped it
            damaged.append(Damaged(folder.name, problem))
            on_damaged(damaged[-1])
    if damaged:
        raise UserError(
            f"{checkpoints}: none of {len(damaged)} checkpoints is valid (the newest: {damaged[0].problem}): "
            "restore one, or remove the folder to start from step 0"
        )
    return None


def last_valid_before(checkpoints: Path, step: int) -> Path | None:
    """The newest sound commit of the state before `step` (counted from 1)."""
    candidates = (folder for folder in step_folders(checkpoints) if (step_of(folder) or 0) < step)
    return next((folder for folder in candidates if problem_of(folder) is None), None)


def best(checkpoints: Path) -> Path | None:
    """The commit with the fewest validation bits per byte, the newer of two; None if none was evaluated.

    Its checksums are not looked at.
    """
    return best_of(step_folders(checkpoints))


def best_of(newest_first: Iterable[Path]) -> Path | None:
    """`best` among these commits."""
    known = [(bits, folder) for folder in newest_first if (bits := _validation_bits(folder)) is not None]
    return min(known, key=lambda pair: pair[0])[1] if known else None


def _validation_bits(folder: Path) -> float | None:
    try:
        bits = float(read_document(folder / STATE_NAME)[VALIDATION])
    except (OSError, UserError, KeyError, TypeError, ValueError):
        return None
    return bits if math.isfinite(bits) and bits > 0 else None


def discard_newer(checkpoints: Path, step: int) -> list[str]:
    """Remove the commits after `step`, the newest first, and name them: training goes on from there another way.

    Newest first, so that a kill in between leaves the ones that are left in order.
    """
    doomed = [folder for folder in step_folders(checkpoints) if (step_of(folder) or 0) > step]
    for folder in doomed:
        remove_commit(folder)
    return [folder.name for folder in doomed]


def remove_commit(folder: Path) -> None:
    """A kill in the middle leaves a folder that is no checkpoint, not a damaged one. Raises OSError."""
    doomed = folder.with_name(f".{folder.name}.old.tmp")
    shutil.rmtree(doomed, ignore_errors=True)
    os.rename(folder, doomed)
    fsync_folder(folder.parent)
    fault_point("commit.old_moved")
    shutil.rmtree(doomed, ignore_errors=True)
    fault_point("commit.old_removed")


def remove_unfinished(checkpoints: Path) -> None:
    """Clear what a kill left half written or half removed. Processes of the killed attempt may still write there."""
    for path in checkpoints.glob(".*.tmp"):
        shutil.rmtree(path, ignore_errors=True)
