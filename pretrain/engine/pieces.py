"""The engine's state as pieces of named parameters.

ZeRO cuts parameters up and spreads them over workers; a piece says which elements of which parameter it holds, so
whoever has all pieces of all workers has the whole state, whatever the stage and the number of workers were.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

MOMENTS = ("exp_avg", "exp_avg_sq")
"""Adam's two moments, by the names torch and DeepSpeed know them by."""


@dataclass(frozen=True)
class Piece:
    """Elements [start, start + len(values_X)) of parameter `name`, flattened in row-major order."""

    name: str
    shape: tuple[int, ...]
    """Of the whole parameter."""
    start: int
    values_X: Tensor
    """float32, in CPU memory, shared with nobody."""


@dataclass(frozen=True)
class EnginePieces:
    """What one worker contributes to a checkpoint; the pieces of all workers cover every parameter exactly once."""

    masters: tuple[Piece, ...]
    moments: dict[str, tuple[Piece, ...]]
    """By `MOMENTS`."""
    adam_steps: int
    """Updates Adam has made; steps that were not applied do not count."""


class StateSource(Protocol):
    """Float32 tensors by parameter name, read when they are asked for; what a checkpoint on disk offers."""

    @property
    def adam_steps(self) -> int: ...

    def master(self, name: str) -> Tensor:
        """The parameter itself, whole."""
        ...

    def master_part(self, name: str, start: int, stop: int) -> Tensor:
        """Elements [start, stop) of the flattened parameter."""
        ...

    def moment_part(self, kind: str, name: str, start: int, stop: int) -> Tensor:
        """The same of one of Adam's moments, `kind` in MOMENTS."""
        ...
