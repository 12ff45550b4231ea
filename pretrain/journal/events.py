"""The events of a training's journal: the name of each there, and the facts that programs need of it.

`Recorder.event` writes one, `event_of` reads it. A fact with a default is missing in journals of older versions.
"""

from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from cluster.journal import JournalRecord


@dataclass(frozen=True, kw_only=True)
class Event:
    """The base class of all events."""

    name: ClassVar[str]

    def facts(self) -> dict[str, Any]:
        """Return the facts as they are in the journal."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Attempt(Event):
    """A process began to work on the run. Times are seconds since the epoch."""

    name = "attempt"
    process_started_s: float | None = None
    previous_beat_s: float | None = None
    """The last heartbeat of the previous attempt."""
    host: str | None = None
    gpu: str | None = None


@dataclass(frozen=True, kw_only=True)
class Hang(Event):
    """The previous attempt ended because a worker hung."""

    name = "hang"


@dataclass(frozen=True, kw_only=True)
class Accepted(Event):
    """A setting differs from the checkpoint's, and the user accepted that; it comes before the start."""

    name = "accepted"
    key: str | None = None


@dataclass(frozen=True, kw_only=True)
class Damaged(Event):
    """A checkpoint was passed over."""

    name = "damaged"
    checkpoint: str
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Start(Event):
    """Steps begin after `step`, from the checkpoint `checkpoint` or from nothing."""

    name = "start"
    attempt: int = 0
    step: int = 0
    cursor: int = 0
    checkpoint: str | None = None
    world_size: int | None = None
    zero_stage: int | None = None
    precision: str | None = None
    num_steps: int | None = None
    lanes: int | None = None
    segment_tokens: int | None = None
    corpus: str | None = None
    rewind_patience_steps: int | None = None
    """How many high losses in a row cause a rewind; None if rewinds are off."""


@dataclass(frozen=True, kw_only=True)
class StartAfterRewind(Start):
    """Steps begin again after a rewind, in the same attempt."""

    name = "start_after_rewind"


@dataclass(frozen=True, kw_only=True)
class Skipped(Event):
    """A step was not applied because its loss or gradient was not finite."""

    name = "skipped"
    step: int = 0
    cursor: int
    cause: str = ""
    documents: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class SuspectData(Event):
    """A single step was not finite between finite ones."""

    name = "suspect_data"
    step: int
    cursor: int
    documents: list[str]


@dataclass(frozen=True, kw_only=True)
class SpikeSeen(Event):
    """The loss rose in these steps."""

    name = "spike"
    first_step: int
    last_step: int


@dataclass(frozen=True, kw_only=True)
class Rewound(Event):
    """The run went back to the state after `to_step`, and skips data steps [from, to) from there on."""

    name = "rewind"
    to_checkpoint: str = ""
    from_step: int = 0
    to_step: int
    skipped_from_cursor: int = 0
    skipped_to_cursor: int = 0
    cause: str = ""


@dataclass(frozen=True, kw_only=True)
class Stragglers(Event):
    """The workers' times were compared."""

    name = "stragglers"
    own_s: tuple[float, ...]
    lagging: list[int]


@dataclass(frozen=True, kw_only=True)
class CheckpointWritten(Event):
    """A checkpoint is complete on disk."""

    name = "checkpoint"
    step: int
    cursor: int = 0
    stall_s: float = 0.0
    """How long steps waited for it."""
    write_s: float = 0.0
    bytes: int = 0
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class CheckpointFailed(Event):
    """A checkpoint could not be written; training continues."""

    name = "checkpoint_failed"
    step: int
    cursor: int
    problem: str


@dataclass(frozen=True, kw_only=True)
class CheckpointWaited(Event):
    """A step waited long for the checkpoint before it."""

    name = "checkpoint_waited"
    step: int
    waited_s: float


@dataclass(frozen=True, kw_only=True)
class CheckpointKept(Event):
    """An old checkpoint could not be removed."""

    name = "checkpoint_kept"
    step: int | None
    problem: str


@dataclass(frozen=True, kw_only=True)
class Diverged(Event):
    """Steps stayed not finite; the next start goes back to the checkpoint of `back_to`."""

    name = "diverged"
    first_step: int = 0
    last_step: int = 0
    back_to: int


@dataclass(frozen=True, kw_only=True)
class Stopped(Event):
    """The attempt ended after `step` on request."""

    name = "stop"
    step: int = 0


@dataclass(frozen=True, kw_only=True)
class Ended(Event):
    """The last step is made and the model written."""

    name = "end"
    step: int = 0


@dataclass(frozen=True, kw_only=True)
class TestEvaluation(Event):
    """A trained system answers the items of a test split."""

    name = "test_evaluation"
    num_items: int


_TYPES: dict[str, type[Event]] = {
    one.name: one
    for one in (
        Attempt, Hang, Accepted, Damaged, Start, StartAfterRewind, Skipped, SuspectData, SpikeSeen, Rewound,
        Stragglers, CheckpointWritten, CheckpointFailed, CheckpointWaited, CheckpointKept, Diverged, Stopped, Ended,
        TestEvaluation,
    )
}  # fmt: skip


def event_of(record: JournalRecord) -> Event | None:
    """Return the event of a record; None for a step, and for events that are only text.

    Facts that this version does not know are left out.
    """
    kind = _TYPES.get(record.name) if record.kind == "event" else None
    if kind is None:
        return None
    known = {one.name for one in fields(kind)}
    return kind(**{name: value for name, value in record.facts.items() if name in known})
