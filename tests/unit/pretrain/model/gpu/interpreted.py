"""Problems for the GPU kernels, which Triton interprets here on the CPU (TRITON_INTERPRET=1, tests/conftest.py)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pytest
from torch import Tensor

from pretrain.model.fused.gpu import tile_sizes
from pretrain.model.fused.gpu.tile_sizes import Tile
from tests.unit.pretrain.model.fused_cases import Problem


class _Everywhere(Mapping[str, Tile]):
    """The same tile for every entry."""

    def __init__(self, tile: Tile) -> None:
        self.tile = tile

    def __getitem__(self, name: str) -> Tile:
        return self.tile

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@contextmanager
def tiles_of(rows: int, columns: int) -> Iterator[None]:
    """Let all kernels use tiles of this size: small ones, so that small problems have many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tile_sizes, "table", lambda: _Everywhere(Tile(rows, columns, 4, 2)))
        yield


def predictions_alone(problem: Problem, length: int) -> Problem:
    """The problem of the last layer, which has no content rows."""
    rows: Callable[[Tensor | None], Tensor | None] = lambda x: None if x is None else x[:, :, length:]  # noqa: E731
    inputs = list(problem.inputs)
    inputs[0], inputs[3] = rows(inputs[0]), rows(inputs[3])
    return replace(
        problem,
        inputs=tuple(inputs),
        gradient_NBQH=problem.gradient_NBQH[:, :, length:],
        mask=problem.mask.rows_from(length),
    )
