"""A commit on disk as tensors, whole or in part, and as lanes of memory."""

from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from cluster.errors import UserError
from cluster.storage import read_document
from pretrain.checkpoint.compatibility import RunIdentity
from pretrain.checkpoint.finding import STATE_NAME
from pretrain.checkpoint.listing import FORMAT, OLDEST_FORMAT, Listing, read_listing
from pretrain.checkpoint.memory_files import count_lanes, read_memory
from pretrain.checkpoint.piece_files import StoredTensors
from pretrain.model.memory import SegmentMemory

_WHOLE_WEIGHTS = "weights.safetensors"
"""Of format 2."""


class CommitTensors:
    """The state a commit holds, read when it is asked for; a `pretrain.engine.pieces.StateSource`.

    Checksums are not looked at again: open what `newest_valid` returned.
    """

    def __init__(self, folder: Path) -> None:
        """Raises UserError when the commit is of another format or its pieces do not fit together."""
        self.folder = folder
        self._listing = _listing_of_now(folder)
        self.state: dict[str, Any] = read_document(folder / STATE_NAME, "use another checkpoint")
        self._masters = StoredTensors(self._paths("weights-*.safetensors"))

    @property
    def step(self) -> int:
        """Optimizer steps done."""
        return int(self.state["step"])

    @property
    def cursor(self) -> int:
        """The data step that is read next."""
        return int(self.state["cursor"])

    @property
    def adam_steps(self) -> int:
        """Updates Adam has made."""
        return int(self.state["adam_steps"])

    @property
    def names(self) -> list[str]:
        """Of all parameters, sorted."""
        return sorted(self._masters.shapes)

    @cached_property
    def identity(self) -> RunIdentity:
        """Whose commit it is."""
        return RunIdentity.read(self.folder)

    @cached_property
    def num_lanes(self) -> int:
        """L."""
        return count_lanes(self._paths("memory-*.safetensors"))

    def master(self, name: str) -> Tensor:
        """A parameter, float32, whole."""
        return self._masters.tensor(name)

    def master_part(self, name: str, start: int, stop: int) -> Tensor:
        """Elements [start, stop) of the flattened parameter, float32; no others are read."""
        return self._masters.part(name, start, stop)

    def moment(self, kind: str, name: str) -> Tensor:
        """One of its Adam moments, float32, whole."""
        return self._moments.tensor(f"{kind}.{name}")

    def moment_part(self, kind: str, name: str, start: int, stop: int) -> Tensor:
        """Elements [start, stop) of it, flattened; no others are read."""
        return self._moments.part(f"{kind}.{name}", start, stop)

    def memory(self, lanes: range) -> SegmentMemory:
        """Of these lanes. Raises UserError when one is missing."""
        return read_memory(self._paths("memory-*.safetensors"), lanes)

    @cached_property
    def _moments(self) -> StoredTensors:
        return StoredTensors(self._paths("optimizer-*.safetensors"))

    def _paths(self, pattern: str) -> list[Path]:
        return [self.folder / name for name in self._listing.matching(pattern)]


def open_commit(folder: Path) -> CommitTensors:
    """See `CommitTensors`."""
    return CommitTensors(folder)


def load_weights(folder: Path) -> dict[str, Tensor]:
    """A commit's float32 weights by parameter name; also of format 2. Raises UserError when they cannot be read."""
    listing = read_listing(folder)
    if listing.format == OLDEST_FORMAT:
        try:
            return dict(load_file(folder / _WHOLE_WEIGHTS))
        except (SafetensorError, OSError) as error:
            raise UserError(
                f"{folder / _WHOLE_WEIGHTS} is damaged ({error}): use another checkpoint"
            ) from None
    stored = StoredTensors(folder / name for name in listing.matching("weights-*.safetensors"))
    return {name: stored.tensor(name) for name in sorted(stored.shapes)}


def _listing_of_now(folder: Path) -> Listing:
    listing = read_listing(folder)
    if listing.format != FORMAT:
        raise UserError(
            f"{folder} was made by an older permcode (format {listing.format}): its model can be used, but training "
            "cannot go on from it; use another --out"
        )
    return listing
