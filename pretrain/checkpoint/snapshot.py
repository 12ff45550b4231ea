"""What one rank hands over for a commit, and what rank 0 adds to it."""

from dataclasses import dataclass
from typing import Any

from pretrain.checkpoint.compatibility import RunIdentity
from pretrain.engine.pieces import EnginePieces
from pretrain.model.memory import SegmentMemory
from pretrain.weights import ModelDescription


@dataclass(frozen=True)
class Snapshot:
    """The state of one rank after `step` steps, in tensors that nobody writes to any more."""

    step: int
    cursor: int
    pieces: EnginePieces
    memory: SegmentMemory
    """Of this rank's lanes."""
    first_lane: int
    state: dict[str, Any]
    """JSON values for state.json beside step, cursor and Adam's step count; those of rank 0 are written."""


@dataclass(frozen=True)
class StaticFiles:
    """What every commit of a run holds alike."""

    identity: RunIdentity
    description: ModelDescription
    tokenizer: bytes
    """Of tokenizer.json."""
