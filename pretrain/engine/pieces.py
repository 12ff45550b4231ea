"""The engine's state as pieces of named parameters.

ZeRO cuts parameters up and spreads them over workers; a piece says which elements of which parameter it holds, so
whoever has all pieces of all workers has the whole state, whatever the stage and the number of workers were.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

MOMENTS = ("exp_avg", "exp_avg_sq")
"""Adam's two moments by their names in torch and DeepSpeed."""


@dataclass(frozen=True)
class Piece:
    """Elements [start, start + len(values_X)) of parameter `name`, flattened in row-major order."""

    name: str
    shape: tuple[int, ...]
    """Of the whole parameter."""
    start: int
    values_X: Tensor
    """float32 in CPU memory; nothing else uses the memory."""


@dataclass(frozen=True)
class EnginePieces:
    """One worker's part of a checkpoint; the pieces of all workers cover every parameter exactly once."""

    masters: tuple[Piece, ...]
    moments: dict[str, tuple[Piece, ...]]
    """Pieces by the names in `MOMENTS`."""
    adam_steps: int
    """The number of updates that Adam has made, without steps that were not applied."""


class StateSource(Protocol):
    """A source of float32 tensors by parameter name, which are read on access; a checkpoint on disk is one."""

    @property
    def adam_steps(self) -> int: ...

    def master(self, name: str) -> Tensor:
        """Return the whole parameter."""
        ...

    def master_part(self, name: str, start: int, stop: int) -> Tensor:
        """Return elements [start, stop) of the flattened parameter."""
        ...

    def moment_part(self, kind: str, name: str, start: int, stop: int) -> Tensor:
        """Return elements [start, stop) of one of Adam's flattened moments, `kind` in MOMENTS."""
        ...
