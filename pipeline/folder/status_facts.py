"""Reads the state and the figures of a pretraining from its folder, whether its process is alive or dead."""

import socket
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from cluster.heartbeat import STALE_S, last_beat_s
from cluster.journal import JournalRecord, read_journal
from cluster.storage import is_locked, read_document
from pretrain.figures import Validation, figures_of
from pretrain.files import PretrainFiles
from pretrain.goodput import Goodput
from pretrain.journal.events import (
    Attempt,
    Damaged,
    Ended,
    Event,
    Rewound,
    Skipped,
    Start,
    StartAfterRewind,
    Stopped,
    Stragglers,
    event_of,
)
from pretrain.journal.replay import Replay

_PROBLEM_FILES = {PretrainFiles.ERROR: "message", PretrainFiles.HANG: "text"}
"""The files that a failed attempt writes, each with the key of its reason."""
_LOOK_S = 0.2
_RECENT_STEPS = 20
_ETA_STEPS = 100
_NUM_WARNINGS = 3

_Recorded = tuple[JournalRecord, Event]
E = TypeVar("E", bound=Event)
State = Literal["starting", "running", "hanging", "stopped", "finished", "failed", "dead"]
_STATE_AFTER: dict[type[Event], State] = {
    Attempt: "starting",
    Start: "running",
    StartAfterRewind: "running",
    Stopped: "stopped",
    Ended: "finished",
}


@dataclass(frozen=True)
class NewestCheckpoint:
    """The checkpoint that was written last."""

    step: int
    age_s: float
    num_steps_since: int
    """The steps that would be lost if the process were killed now."""


@dataclass(frozen=True)
class TimedWarning:
    """A warning of the journal with its time."""

    time_s: float
    text: str


@dataclass(frozen=True, kw_only=True)
class StatusFacts:
    """The figures of `permcode status`; None where the folder does not have them. Times are seconds since the epoch."""

    folder: str
    state: State
    since_s: float
    """The start of this state; for a dead or hanging run the time of its last heartbeat."""
    problem: str | None
    num_attempts: int
    world_size: int | None
    device: str | None
    step: int
    """The last step of the newest attempt."""
    last_step_age_s: float | None
    """Seconds since the last step of the newest attempt."""
    furthest_step: int
    """The last step of all attempts: more than `step` while lost steps are repeated."""
    furthest_tokens: int | None
    num_steps: int | None
    tokens: int | None
    """The tokens read up to `step`."""
    tokens_per_s: float | None
    """The median of the newest steps of the newest attempt."""
    step_tokens_per_s: float | None
    overall_tokens_per_s: float | None
    """This and `step_tokens_per_s` are defined in `PretrainFigures`."""
    left_s: float | None
    """The estimated rest of a live run, at the speed of the newest steps with saves and evaluations included."""
    loss: float | None
    validation: Validation | None
    """The last validation during training."""
    best_validation: Validation | None
    final_validation: dict[str, Any] | None
    """The final validation of a finished run, as in result.json but without figures by condition and language."""
    checkpoint: NewestCheckpoint | None
    num_skipped_steps: int
    num_rewinds: int
    num_damaged: int
    """The number of damaged checkpoints that were skipped."""
    stragglers: str | None
    """The last warning about slow workers."""
    num_warnings: int
    warnings: list[TimedWarning]
    """The newest warnings."""
    goodput: Goodput

    @property
    def is_live(self) -> bool:
        """Whether the run may still make steps."""
        return self.state in ("starting", "running")


def read_facts(folder: Path, now_s: float | None = None) -> StatusFacts:
    """Read the status of the pretraining in `folder`, which has a journal with at least one record."""
    records = read_journal(folder / PretrainFiles.JOURNAL)
    beat_s = last_beat_s(folder / PretrainFiles.HEARTBEAT)
    events = [(record, event) for record in records if (event := event_of(record)) is not None]
    made = _steps_of_newest_attempt(records)
    start, attempt = _last(events, Start) or Start(), _last(events, Attempt) or Attempt()
    if now_s is None:
        now_s, beat_s = _times_on_one_clock(folder, attempt.host, beat_s)
    state, since_s = _state(folder, events, beat_s, now_s)
    is_live = state in ("starting", "running")
    figures = figures_of(records, beat_s, now_s)
    replay = figures.replay
    steps = figures.steps
    step = replay.position
    num_steps = start.num_steps
    recent_tokens_per_s = [
        record.metrics["tokens_per_s"] for record in made[-_RECENT_STEPS:] if "tokens_per_s" in record.metrics
    ]
    warnings = [TimedWarning(record.time_s, record.text) for record in records if record.level == "warning"]
    return StatusFacts(
        folder=str(folder),
        state=state,
        since_s=since_s,
        problem=_problem(folder) if state in ("failed", "dead") else None,
        num_attempts=replay.num_attempts,
        world_size=start.world_size,
        device=attempt.gpu,
        step=step,
        last_step_age_s=max(0.0, now_s - made[-1].time_s) if made else None,
        furthest_step=max([step, *steps]),
        num_steps=num_steps,
        tokens=None if figures.tokens_per_step is None else step * figures.tokens_per_step,
        furthest_tokens=figures.tokens,
        tokens_per_s=statistics.median(recent_tokens_per_s) if recent_tokens_per_s else None,
        step_tokens_per_s=figures.step_tokens_per_s,
        overall_tokens_per_s=figures.overall_tokens_per_s,
        left_s=_left_s(made, step, num_steps) if is_live else None,
        loss=steps[step].get("loss") if step in steps else None,
        validation=figures.validation,
        best_validation=figures.best_validation,
        final_validation=_final_validation(folder) if state == "finished" else None,
        checkpoint=_newest_checkpoint(replay, now_s),
        num_skipped_steps=len({event.cursor for _, event in events if isinstance(event, Skipped)}),
        num_rewinds=sum(isinstance(event, Rewound) for _, event in events),
        num_damaged=sum(isinstance(event, Damaged) for _, event in events),
        stragglers=next(
            (record.text for record, event in reversed(events) if isinstance(event, Stragglers)), None
        ),
        num_warnings=len(warnings),
        warnings=warnings[-_NUM_WARNINGS:],
        goodput=figures.goodput,
    )


def _times_on_one_clock(folder: Path, host: str | None, beat_s: float | None) -> tuple[float, float | None]:
    """Return the time now and that of the last heartbeat, such that their difference says whether the heart beats.

    The heartbeats have the times of the machine that beats. Those of another machine are watched until the next one,
    which then is now on the run's own clock.
    """
    if beat_s is None or host in (None, socket.gethostname()):
        return time.time(), beat_s
    deadline_s = time.monotonic() + STALE_S
    while time.monotonic() < deadline_s:
        newest_s = last_beat_s(folder / PretrainFiles.HEARTBEAT)
        if newest_s is not None and newest_s != beat_s:
            return newest_s, newest_s
        time.sleep(_LOOK_S)
    # It is dead, however fresh its last beat looks on this machine's clock.
    return max(time.time(), beat_s + STALE_S), beat_s


def _state(
    folder: Path, events: Sequence[_Recorded], beat_s: float | None, now_s: float
) -> tuple[State, float]:
    """Return the state and its start, in seconds since the epoch."""
    last = next(((record, event) for record, event in reversed(events) if type(event) in _STATE_AFTER), None)
    recorded: State = _STATE_AFTER[type(last[1])] if last else "running"
    recorded_s = last[0].time_s if last else now_s
    if recorded in ("finished", "stopped") or (beat_s is not None and now_s - beat_s < STALE_S):
        return recorded, recorded_s
    silent_since_s = recorded_s if beat_s is None else max(beat_s, recorded_s)
    if is_locked(folder / PretrainFiles.WRITER_LOCK):
        return "hanging", silent_since_s
    return ("dead" if _problem(folder) is None else "failed"), silent_since_s


def _problem(folder: Path) -> str | None:
    """Return why the last attempt ended, if it recorded a reason."""
    for name, key in _PROBLEM_FILES.items():
        if (folder / name).is_file():
            return str(read_document(folder / name)[key])
    return None


def _steps_of_newest_attempt(records: Sequence[JournalRecord]) -> list[JournalRecord]:
    """Return the records of the steps since the last start of a process, or since the last rewind."""
    begins = [
        index
        for index, record in enumerate(records)
        if isinstance(event_of(record), Attempt | StartAfterRewind)
    ]
    return [record for record in records[begins[-1] if begins else 0 :] if record.kind == "step"]


def _last(events: Sequence[_Recorded], kind: type[E]) -> E | None:
    return next((event for _, event in reversed(events) if isinstance(event, kind)), None)


def _final_validation(folder: Path) -> dict[str, Any] | None:
    path = folder / PretrainFiles.RESULT
    if not path.is_file():
        return None
    found = read_document(path)["validation"]
    return {key: value for key, value in found.items() if key not in ("by_condition", "table")}


def _left_s(made: Sequence[JournalRecord], step: int, num_steps: int | None) -> float | None:
    recent = made[-_ETA_STEPS:]
    num_made = (recent[-1].step or 0) - (recent[0].step or 0) if recent else 0
    if num_steps is None or num_made < 1:
        return None
    return max(0.0, recent[-1].time_s - recent[0].time_s) / num_made * (num_steps - step)


def _newest_checkpoint(replay: Replay, now_s: float) -> NewestCheckpoint | None:
    if not replay.checkpoints:
        return None
    step, record = max(replay.checkpoints.items(), key=lambda one: one[0])
    return NewestCheckpoint(step, max(0.0, now_s - record.time_s), max(0, replay.position - step))
