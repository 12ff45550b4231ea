"""Resuming a run: its newest valid checkpoint, after unfinished files and void checkpoints are removed."""

from dataclasses import dataclass
from pathlib import Path

from cluster.errors import UserError
from cluster.journal import read_journal
from cluster.storage import read_document
from pretrain.checkpoint.listing import STATE_NAME, step_folders, step_of
from pretrain.checkpoint.manager import newest_checkpoint
from pretrain.checkpoint.retention import discard_newer, remove_checkpoint, remove_unfinished
from pretrain.health.divergence import pending_return_step
from pretrain.health.rewinds import Rewinds, read_rewinds, record_rewind
from pretrain.journal.events import Attempt, Rewound, event_of
from pretrain.journal.recorder import Recorder
from pretrain.run import Run


@dataclass(frozen=True)
class ResumePoint:
    """The state that training resumes from, the same for all workers."""

    num_attempts: int
    """The number of attempts of the run, this one included."""
    checkpoint: Path | None
    rewinds: Rewinds


def prepare_resume(run: Run, recorder: Recorder) -> ResumePoint:
    """Remove what a kill left, and return the checkpoint to resume from; for one worker.

    Raises UserError when there are checkpoints and none is valid.
    """
    rewinds = read_rewinds(run.folder)
    remove_unfinished(run.checkpoints)
    _remove_void(run.checkpoints, rewinds)
    records = read_journal(run.journal)
    events = [event_of(record) for record in records]
    back_to = pending_return_step(records)
    checkpoint = newest_checkpoint(run.checkpoints, recorder, back_to)
    if back_to is not None:
        discard_newer(run.checkpoints, back_to)
    for rewind in rewinds.rewinds[sum(isinstance(event, Rewound) for event in events) :]:
        record_rewind(recorder, rewind)  # a kill came between the file and the journal
    return ResumePoint(sum(isinstance(event, Attempt) for event in events), checkpoint, rewinds)


def _remove_void(checkpoints: Path, rewinds: Rewinds) -> None:
    """Complete a rewind that was killed: remove the checkpoints after its target."""
    for folder in step_folders(checkpoints):
        try:
            seen = int(read_document(folder / STATE_NAME)["rewinds_seen"])
        except (OSError, UserError, KeyError, TypeError, ValueError):
            continue  # a damaged one; it will be skipped
        if rewinds.is_void(step_of(folder) or 0, seen):
            remove_checkpoint(folder)
