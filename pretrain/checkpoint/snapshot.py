"""The state of one rank that is saved in a checkpoint, and the files that rank 0 adds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster.storage import document_bytes
from pretrain.checkpoint.compatibility import RunIdentity
from pretrain.engine.pieces import EnginePieces
from pretrain.model.segment_memory import SegmentMemory
from pretrain.weights import ModelDescription


@dataclass(frozen=True)
class Snapshot:
    """The state of one rank after `step` steps, in tensors that do not change any more."""

    step: int
    cursor: int
    pieces: EnginePieces
    memory: SegmentMemory | None
    """The memory of this rank's lanes; None for a network without memory."""
    first_lane: int
    state: dict[str, Any]
    """JSON values for state.json beside step, cursor and Adam's step count; those of rank 0 are written."""


@dataclass(frozen=True)
class StaticFiles:
    """The files that are the same in every checkpoint of a run, by name."""

    files: Mapping[str, bytes]

    @classmethod
    def of_pretraining(
        cls, identity: RunIdentity, description: ModelDescription, tokenizer: bytes
    ) -> "StaticFiles":
        """Make the files of a pretraining run; `tokenizer` are the bytes of tokenizer.json."""
        return cls(
            {
                "config.json": document_bytes(identity.to_json()),
                "model.json": document_bytes(description.to_json()),
                "tokenizer.json": tokenizer,
            }
        )
