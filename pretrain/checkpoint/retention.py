"""Which commits stay when a new one is there."""

from pathlib import Path

from pretrain.checkpoint.finding import best_of
from pretrain.checkpoint.listing import step_folders, step_of
from pretrain.config import CheckpointConfig


def doomed_commits(
    checkpoints: Path, keep: CheckpointConfig, newest_step: int, damaged_steps: frozenset[int]
) -> list[Path]:
    """Commits to drop once the one of `newest_step` is there, the oldest first.

    Kept are the newest `keep.keep`, every multiple of `keep.keep_every_steps` and, with `keep.keep_best`, the best.
    Those of `damaged_steps` were passed over: they count for none of these. Later ones than `newest_step` stay.
    """
    folders = {step: path for path in step_folders(checkpoints) if (step := step_of(path)) is not None}
    sound = [step for step in folders if step <= newest_step and step not in damaged_steps]
    kept = set(sorted(sound, reverse=True)[: keep.keep])
    if keep.keep_every_steps:
        kept |= {step for step in sound if step % keep.keep_every_steps == 0}
    if keep.keep_best and (best_one := best_of(folders[step] for step in sound)) is not None:
        kept |= {step for step in sound if folders[step] == best_one}
    return [folders[step] for step in sorted(folders) if step <= newest_step and step not in kept]
