"""The newest valid checkpoint as all workers find it together: each hashes a share of the files.

The first worker decides for all, so no two can resume from different checkpoints. Shares depend on the listing alone.
"""

import heapq
import os
from collections.abc import Callable
from pathlib import Path

import torch.distributed as dist

from cluster.errors import UserError
from pretrain.agreement import agreed, gathered, scattered
from pretrain.checkpoint.listing import (
    FileEntry,
    Listing,
    NewerFormatError,
    read_listing,
    step_folders,
    step_of,
)
from pretrain.checkpoint.verify import Damaged, damaged_files, none_is_valid, problem_with


def newest_valid_of_all(
    checkpoints: Path, on_damaged: Callable[[Damaged], None], up_to_step: int | None = None
) -> Path | None:
    """Return in every worker what `verify.newest_valid` would return in the first one; collective.

    `on_damaged` is called in the first worker. Raises UserError in every worker where `newest_valid` does.
    """
    damaged: list[Damaged] = []
    for folder in agreed(lambda: step_folders(checkpoints)):
        if up_to_step is not None and (step_of(folder) or 0) > up_to_step:
            continue
        problem = find_damage_together(folder)
        if problem is None:
            return folder
        if agreed(folder.is_dir):  # else a run in progress has just removed it
            damaged.append(Damaged(folder.name, problem))
            if dist.get_rank() == 0:
                on_damaged(damaged[-1])
    if damaged:
        raise none_is_valid(checkpoints, damaged)
    return None


def last_valid_before_of_all(checkpoints: Path, step: int) -> Path | None:
    """Return in every worker what `verify.last_valid_before` would return in the first one; collective."""
    for folder in agreed(lambda: step_folders(checkpoints)):
        if (step_of(folder) or 0) < step and find_damage_together(folder) is None:
            return folder
    return None


def find_damage_together(folder: Path) -> str | None:
    """Return in every worker what is wrong with a checkpoint, None if nothing is; collective.

    Raises NewerFormatError, as UserError. What another worker finds damaged the first one hashes again: a worker whose
    node cannot read a file must not make all of them fall back to an older checkpoint.
    """
    listing: Listing | None = None  # in the first worker alone: with many workers it is long

    def read() -> str | None:
        nonlocal listing
        found = _read_or_problem(folder)
        if isinstance(found, str):
            return found
        listing = found
        return None

    problem = agreed(read)
    if problem is not None:
        return problem
    own = scattered(None if listing is None else shares(listing.files, dist.get_world_size()))
    found = gathered(damaged_files(folder, own, _num_threads()))
    return agreed(lambda: _first_problem(folder, listing, sorted(name for names in found for name in names)))


def shares(files: dict[str, FileEntry], num_workers: int) -> list[dict[str, FileEntry]]:
    """Divide files among workers by size.

    Each file, the biggest first, goes to the worker with the fewest bytes, and of equal ones to the first. After a
    restart with as many workers, and files of equal sizes, each has those that it wrote and reads next.
    """
    divided: list[dict[str, FileEntry]] = [{} for _ in range(num_workers)]
    loads = [(0, rank) for rank in range(num_workers)]
    for name in sorted(files, key=lambda name: (-files[name].size_bytes, name)):
        size_bytes, rank = loads[0]
        heapq.heapreplace(loads, (size_bytes + files[name].size_bytes, rank))
        divided[rank][name] = files[name]
    return divided


def _read_or_problem(folder: Path) -> Listing | str:
    try:
        return read_listing(folder)
    except NewerFormatError:
        raise
    except UserError as error:
        return str(error)


def _first_problem(folder: Path, listing: Listing | None, suspects: list[str]) -> str | None:
    for name in suspects:
        if listing is not None and damaged_files(folder, {name: listing.files[name]}, num_threads=1):
            return problem_with(folder, name)
    return None


def _num_threads() -> int:
    """Return this worker's share of its node's processors."""
    return max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
