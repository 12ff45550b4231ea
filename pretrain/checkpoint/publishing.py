"""From the files of all ranks in a temporary folder to a commit that everybody finds; rank 0's work."""

import os
import shutil
from pathlib import Path

from cluster.fault_points import fault_point
from cluster.storage import fsync_folder
from pretrain.checkpoint.files import FileEntry
from pretrain.checkpoint.finding import remove_commit
from pretrain.checkpoint.listing import FORMAT, Listing, step_name
from pretrain.checkpoint.parts import drop_parts


def temporary_folder(checkpoints: Path, step: int, token: str) -> Path:
    """Where the ranks write a commit before it is one. `token` keeps apart what several attempts write."""
    return checkpoints / f".{step_name(step)}.{token}.tmp"


def publish(temporary: Path, final: Path, step: int, files: dict[str, FileEntry], num_ranks: int) -> Listing:
    """List the files, make everything durable and give the folder its name.

    A commit of that name must be one that was passed over as damaged: an older valid one is there, so that a kill
    between the two renames loses nothing. Raises OSError, or UserError when the disk is full.
    """
    fault_point("commit.parts_found")
    drop_parts(temporary, num_ranks)
    listing = Listing(FORMAT, step, files)
    listing.write(temporary)
    fault_point("commit.listed")
    fsync_folder(temporary)
    fault_point("commit.folder_synced")
    if final.exists():
        remove_commit(final)
        fault_point("commit.damaged_moved")
    os.rename(temporary, final)
    fault_point("commit.renamed")
    fsync_folder(final.parent)
    fsync_folder(final.parent.parent)  # the first commit comes with its folder
    fault_point("commit.published")
    return listing


def abandon(temporary: Path) -> None:
    """Remove what was written of a commit that will be none; a rank may still be writing there."""
    shutil.rmtree(temporary, ignore_errors=True)
