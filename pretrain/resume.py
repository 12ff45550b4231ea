"""Resuming a run: its newest valid checkpoint, after unfinished files and void checkpoints are removed."""

from dataclasses import dataclass
from pathlib import Path

from cluster.errors import UserError
from cluster.journal import read_journal
from cluster.storage import read_document
from pretrain.agreement import agreed
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
    """Remove what a kill left, and return the checkpoint to resume from; collective.

    The first worker removes and records; all verify the checkpoints. Raises UserError in all when there are checkpoints
    and none is valid.
    """
    past = agreed(lambda: _tidy(run))
    checkpoint = newest_checkpoint(run.checkpoints, recorder, past.back_to)
    agreed(lambda: _complete(run, recorder, past))
    return ResumePoint(past.num_attempts, checkpoint, past.rewinds)


@dataclass(frozen=True)
class _Past:
    """What the run's folder says about earlier starts."""

    num_attempts: int
    num_recorded_rewinds: int
    back_to: int | None
    """The last good step before a divergence from which a person continues."""
    rewinds: Rewinds


def _tidy(run: Run) -> _Past:
    """Remove unfinished files and void checkpoints, and read the journal; for one worker."""
    rewinds = read_rewinds(run.folder)
    remove_unfinished(run.checkpoints)
    _remove_void(run.checkpoints, rewinds)
    records = read_journal(run.journal)
    events = [event_of(record) for record in records]
    return _Past(
        num_attempts=sum(isinstance(event, Attempt) for event in events),
        num_recorded_rewinds=sum(isinstance(event, Rewound) for event in events),
        back_to=pending_return_step(records),
        rewinds=rewinds,
    )


def _complete(run: Run, recorder: Recorder, past: _Past) -> None:
    """Complete a return to an earlier step, and record rewinds between whose file and journal a kill came."""
    if past.back_to is not None:
        discard_newer(run.checkpoints, past.back_to)
    for rewind in past.rewinds.rewinds[past.num_recorded_rewinds :]:
        record_rewind(recorder, rewind)


def _remove_void(checkpoints: Path, rewinds: Rewinds) -> None:
    """Complete a rewind that was killed: remove the checkpoints after its target."""
    for folder in step_folders(checkpoints):
        try:
            seen = int(read_document(folder / STATE_NAME)["rewinds_seen"])
        except (OSError, UserError, KeyError, TypeError, ValueError):
            continue  # a damaged one; it will be skipped
        if rewinds.is_void(step_of(folder) or 0, seen):
            remove_checkpoint(folder)
