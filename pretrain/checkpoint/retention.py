"""Retention of checkpoints: the ones to keep, the best one, and removal."""

import math
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from cluster.errors import UserError
from cluster.fault_points import fault_point
from cluster.storage import fsync_folder, read_document
from pretrain.checkpoint.listing import STATE_NAME, step_folders, step_of
from pretrain.config import CheckpointConfig

VALIDATION = "validation_bits_per_byte"
"""The key of state.json that is there when an evaluation was made at the checkpoint's step."""


def superseded_checkpoints(
    checkpoints: Path, keep: CheckpointConfig, newest_step: int, damaged_steps: frozenset[int]
) -> list[Path]:
    """Return the checkpoints to remove once the one of `newest_step` is written, the oldest first.

    Kept are the newest `keep.keep`, every multiple of `keep.keep_every_steps` and, with `keep.keep_best`, the best.
    Damaged ones, of `damaged_steps`, count for none of these. Checkpoints after `newest_step` are kept.
    """
    folders = {step: path for path in step_folders(checkpoints) if (step := step_of(path)) is not None}
    valid = [step for step in folders if step <= newest_step and step not in damaged_steps]
    kept = set(sorted(valid, reverse=True)[: keep.keep])
    if keep.keep_every_steps:
        kept |= {step for step in valid if step % keep.keep_every_steps == 0}
    if keep.keep_best and (best_one := best_of(folders[step] for step in valid)) is not None:
        kept |= {step for step in valid if folders[step] == best_one}
    return [folders[step] for step in sorted(folders) if step <= newest_step and step not in kept]


def best(checkpoints: Path) -> Path | None:
    """Return the checkpoint with the fewest validation bits per byte, the newer of equal ones; None if none has any.

    Its checksums are not verified.
    """
    return best_of(step_folders(checkpoints))


def best_of(newest_first: Iterable[Path]) -> Path | None:
    """Return the best of these checkpoints, see `best`."""
    known = [(bits, folder) for folder in newest_first if (bits := _validation_bits(folder)) is not None]
    return min(known, key=lambda pair: pair[0])[1] if known else None


def _validation_bits(folder: Path) -> float | None:
    try:
        bits = float(read_document(folder / STATE_NAME)[VALIDATION])
    except (OSError, UserError, KeyError, TypeError, ValueError):
        return None
    return bits if math.isfinite(bits) and bits > 0 else None


def discard_newer(checkpoints: Path, step: int) -> list[str]:
    """Remove the checkpoints after `step` and return their names: training continues from `step` on another path.

    The newest is removed first, so that a kill in between leaves a sequence without gaps.
    """
    newer = [folder for folder in step_folders(checkpoints) if (step_of(folder) or 0) > step]
    for folder in newer:
        remove_checkpoint(folder)
    return [folder.name for folder in newer]


def remove_checkpoint(folder: Path) -> None:
    """Remove a checkpoint; a kill in between leaves no damaged one. Raises OSError."""
    renamed = folder.with_name(f".{folder.name}.old.tmp")
    shutil.rmtree(renamed, ignore_errors=True)
    os.rename(folder, renamed)
    fsync_folder(folder.parent)
    fault_point("checkpoint.old_moved")
    shutil.rmtree(renamed, ignore_errors=True)
    fault_point("checkpoint.old_removed")


def remove_unfinished(checkpoints: Path) -> None:
    """Remove what a kill left half written or half removed. Processes of the killed attempt may still write there."""
    for path in checkpoints.glob(".*.tmp"):
        shutil.rmtree(path, ignore_errors=True)
