"""A matrix that every step of a recurrence multiplies by, and whose gradient is computed once.

Autograd computes the gradient of such a matrix at every step and adds it to the sum: a pass over the whole matrix for
every token, rounded to the weights' type each time. Here rows and the gradients of their products are kept until the
backward pass of all steps is done; then one product sums over all steps.

Shapes: X rows, I inputs, O outputs.
"""

from typing import Any

import torch
from torch import Tensor

_Steps = list[tuple[Tensor, Tensor]]


class SharedFactor:
    """A matrix [..., I, O] that multiplies rows [..., X, I] of as many dimensions; the products are [..., X, O].

    An object serves one forward pass and one backward pass.
    """

    def __init__(self, matrix: Tensor) -> None:
        # The kept steps have no reference to `_matrix`: a cycle would be freed by the garbage collector only.
        self._steps: _Steps = []
        self._matrix: Tensor = _BackwardLast.apply(matrix, self._steps)  # type: ignore[no-untyped-call]

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the products of one step."""
        products: Tensor = _Product.apply(rows, self._matrix, self._steps)  # type: ignore[no-untyped-call]
        return products


class _BackwardLast(torch.autograd.Function):
    """The matrix itself; its backward runs after those of all products, none of which returns a gradient for it."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, steps: _Steps) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.steps = steps
        return matrix.view_as(matrix)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None]:
        if not ctx.steps:
            return None, None
        rows, of_products = zip(*ctx.steps, strict=True)
        ctx.steps.clear()
        return torch.cat(rows, dim=-2).mT @ torch.cat(of_products, dim=-2), None


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, matrix: Tensor, steps: _Steps) -> Tensor:
        ctx.save_for_backward(rows, matrix)
        ctx.steps = steps
        return rows @ matrix

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        rows, matrix = ctx.saved_tensors
        ctx.steps.append((rows.detach(), gradients[0]))
        return gradients[0] @ matrix.mT, None, None
