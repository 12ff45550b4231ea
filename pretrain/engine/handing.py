"""Giving DeepSpeed gradients that were computed outside of it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


def backward_with(engine: Any, parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor]) -> None:
    """Let `engine` run a backward pass in which `parameters` get `gradients`, cast to their types."""
    cast = [gradient.to(parameter.dtype) for parameter, gradient in zip(parameters, gradients, strict=True)]
    engine.backward(_Given.apply(cast, *parameters))  # type: ignore[no-untyped-call]


class _Given(torch.autograd.Function):
    """A loss of 0 with gradients of its own."""

    @staticmethod
    def forward(ctx: Any, gradients: list[Tensor], *parameters: nn.Parameter) -> Tensor:
        ctx.gradients = gradients
        return parameters[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.gradients
