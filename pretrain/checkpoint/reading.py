"""A checkpoint on disk as tensors, whole or in part, as lanes of memory, and as one hash of all that it holds."""

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cluster.storage import canonical_json, read_document
from pretrain.agreement import agreed
from pretrain.checkpoint.compatibility import RunIdentity
from pretrain.checkpoint.listing import STATE_NAME, read_listing
from pretrain.checkpoint.memory_files import count_lanes, read_memory
from pretrain.checkpoint.tensor_files import StoredTensors
from pretrain.engine.pieces import MOMENTS
from pretrain.model.segment_memory import SegmentMemory


class CheckpointTensors:
    """The state in a checkpoint, read on access; a `pretrain.engine.pieces.StateSource`.

    Checksums are not verified here: `verify.newest_valid` returns a verified folder. See `opened_for_all` for workers.
    """

    def __init__(self, folder: Path) -> None:
        """Open the files. Raises UserError when they are damaged or the pieces do not fit together."""
        self.folder = folder
        self._listing = read_listing(folder)
        self.state: dict[str, Any] = read_document(folder / STATE_NAME, "use another checkpoint")
        self._masters = StoredTensors(self._paths("weights-*.safetensors"))

    @classmethod
    def opened_for_all(cls, folder: Path) -> "CheckpointTensors":
        """Open a checkpoint in the first worker and return it in all; collective.

        The others read neither the listing nor the heads of all files, of which there are as many as workers.
        """

        def opened() -> CheckpointTensors:
            checkpoint = cls(folder)
            _ = checkpoint._moments, checkpoint.identity  # read now, so that they are sent
            return checkpoint

        return agreed(opened)

    @property
    def step(self) -> int:
        """The number of optimizer steps done."""
        return int(self.state["step"])

    @property
    def cursor(self) -> int:
        """The data step that is read next."""
        return int(self.state["cursor"])

    @property
    def adam_steps(self) -> int:
        """The number of updates that Adam has made."""
        return int(self.state["adam_steps"])

    @property
    def names(self) -> list[str]:
        """The names of all parameters, sorted."""
        return sorted(self._masters.shapes)

    @cached_property
    def identity(self) -> RunIdentity:
        """The run that wrote the checkpoint."""
        return RunIdentity.read(self.folder)

    @cached_property
    def num_lanes(self) -> int:
        """L."""
        return count_lanes(self._paths("memory-*.safetensors"))

    def master(self, name: str) -> Tensor:
        """Return a whole parameter, float32."""
        return self._masters.tensor(name)

    def master_part(self, name: str, start: int, stop: int) -> Tensor:
        """Return elements [start, stop) of the flattened parameter, float32; no others are read."""
        return self._masters.part(name, start, stop)

    def moment(self, kind: str, name: str) -> Tensor:
        """Return a whole Adam moment of a parameter, float32."""
        return self._moments.tensor(f"{kind}.{name}")

    def moment_part(self, kind: str, name: str, start: int, stop: int) -> Tensor:
        """Return elements [start, stop) of a flattened Adam moment; no others are read."""
        return self._moments.part(f"{kind}.{name}", start, stop)

    def memory(self, lanes: range) -> SegmentMemory:
        """Return the segment memory of `lanes`. Raises UserError when a lane is missing."""
        return read_memory(self._paths("memory-*.safetensors"), lanes)

    @cached_property
    def _moments(self) -> StoredTensors:
        return StoredTensors(self._paths("optimizer-*.safetensors"))

    def _paths(self, pattern: str) -> list[Path]:
        return [self.folder / name for name in self._listing.matching(pattern)]


def load_weights(folder: Path) -> dict[str, Tensor]:
    """Return a checkpoint's float32 weights by parameter name. Raises UserError when they cannot be read."""
    listing = read_listing(folder)
    stored = StoredTensors(folder / name for name in listing.matching("weights-*.safetensors"))
    return {name: stored.tensor(name) for name in sorted(stored.shapes)}


def state_digest(folder: Path) -> str:
    """Return the hex SHA-256 of weights, optimizer, memory and cursor, sorted by name and by lane.

    Equal states have equal digests, whatever the number of ranks, their lanes and their pieces were. Raises UserError
    when the checkpoint is incomplete.
    """
    checkpoint = CheckpointTensors(folder)
    hashed = hashlib.sha256(
        canonical_json({"cursor": checkpoint.cursor, "adam_steps": checkpoint.adam_steps}).encode()
    )

    def add(label: str, tensor: Tensor) -> None:
        hashed.update(canonical_json([label, str(tensor.dtype), list(tensor.shape)]).encode())
        hashed.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)

    for name in checkpoint.names:
        add(name, checkpoint.master(name))
        for kind in MOMENTS:
            add(f"{kind}.{name}", checkpoint.moment(kind, name))
    for lane in range(checkpoint.num_lanes):
        memory = checkpoint.memory(range(lane, lane + 1))
        for number, layer_BMD in enumerate(memory.layers_BMD):
            add(f"lane {lane} layer {number}", layer_BMD)
        add(f"lane {lane} group", memory.group_BM)
        add(f"lane {lane} document", memory.document_BM)
    return hashed.hexdigest()
