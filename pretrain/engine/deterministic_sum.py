"""The deterministic sum of gradients: the same bits with 1, 2, 4 ... workers.

Float addition is not associative, so the order is fixed: a binary tree over the step's micro-batches, which are a
power of two. A worker has consecutive ones and sums its subtree; then the workers sum by recursive halving: at distance
1, 2, 4 ... each exchanges half of its remaining range with its partner. Each ends with one slice of the whole sum, at
the traffic of a reduce-scatter. The norm is summed in float64 by chunks that no number of workers cuts.

Shapes: X all parameters' elements in a row with padding, S the slice of a worker.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

_CHUNK_UNIT_ELEMENTS = 64
"""Chunks begin at aligned addresses, by which kernels may choose how they sum."""
_SMALLEST = 2.0**-100
"""Smaller elements become 0: for the smallest floats, division by the number of workers could round."""


@dataclass(frozen=True)
class SummedGradient:
    """A worker's part of a step's mean gradient."""

    part_X: Tensor
    """Its slice of the clipped gradient, and zeros elsewhere; the workers' parts add up to the gradient."""
    norm: float
    """The norm of the whole gradient before clipping; not finite if any micro-batch's gradient was not."""


@dataclass(frozen=True)
class _Subtree:
    """The sum of micro-batches [first, first + size); `first` is a multiple of `size`, a power of two."""

    first: int
    size: int
    sum_X: Tensor

    def is_left_of(self, other: "_Subtree") -> bool:
        """Return whether this subtree and `other` are the left and right child of one node."""
        is_left_child = self.first % (2 * self.size) == 0
        return is_left_child and self.size == other.size and self.first + self.size == other.first


class DeterministicSum:
    """Sums the gradients of a worker's micro-batches as they come, and those of all workers at last."""

    def __init__(self, parameters: Sequence[Tensor], num_micro_batches: int) -> None:
        """Prepare an empty sum; `num_micro_batches`, of all workers together, must be a power of two."""
        self._parameters = parameters
        self._num_micro_batches = num_micro_batches
        unit = _CHUNK_UNIT_ELEMENTS * num_micro_batches
        self._num_elements = -(-sum(parameter.numel() for parameter in parameters) // unit) * unit
        self._subtrees: list[_Subtree] = []
        """Complete subtrees, merged as far as possible."""

    def add(self, loss: Tensor, micro_batch: int) -> None:
        """Add the gradient of the mean loss of micro-batch number `micro_batch`, which follows the last one."""
        tree = _Subtree(micro_batch, 1, self._flat_gradient(loss))
        while self._subtrees and self._subtrees[-1].is_left_of(tree):
            left = self._subtrees.pop()
            tree = _Subtree(left.first, 2 * left.size, left.sum_X.add_(tree.sum_X))
        self._subtrees.append(tree)

    def take(self, clip_norm: float) -> SummedGradient:
        """Return the mean of all micro-batches' gradients, clipped, and start a new sum. Collective."""
        (tree,) = self._subtrees
        sum_X = tree.sum_X
        self._subtrees = []
        begin, end = _halve(sum_X)
        norm = self._norm(sum_X[begin:end], begin) / self._num_micro_batches
        scale = min(1.0, clip_norm / (norm + 1e-6)) / self._num_micro_batches
        part_X = torch.zeros_like(sum_X)
        part_X[begin:end] = functional.hardshrink(sum_X[begin:end].mul_(scale), _SMALLEST)
        return SummedGradient(part_X, norm)

    def views(self, flat_X: Tensor) -> list[Tensor]:
        """Return views of a flat gradient in the parameters' shapes."""
        sizes = [parameter.numel() for parameter in self._parameters]
        parts = torch.split(flat_X[: sum(sizes)], sizes)
        return [part.view(parameter.shape) for part, parameter in zip(parts, self._parameters, strict=True)]

    def _flat_gradient(self, loss: Tensor) -> Tensor:
        gradients = torch.autograd.grad(loss, self._parameters, materialize_grads=True)
        flat_X = torch.zeros(self._num_elements, device=loss.device)
        torch._foreach_copy_(self.views(flat_X), gradients)
        return flat_X

    def _norm(self, sum_S: Tensor, begin: int) -> float:
        """Return the norm of the whole sum, of which this worker has the slice that begins at `begin`. Collective."""
        chunk = self._num_elements // self._num_micro_batches
        squares = torch.zeros(self._num_micro_batches, dtype=torch.float64, device=sum_S.device)
        for number, chunk_S in enumerate(torch.split(sum_S, chunk), start=begin // chunk):
            squares[number] = torch.linalg.vector_norm(chunk_S, dtype=torch.float64).square()
        dist.all_reduce(squares)  # all but one of the numbers added are zeros
        return float(squares.sum().sqrt())


def _halve(sum_X: Tensor) -> tuple[int, int]:
    """Sum over the workers in place; only the returned slice, this worker's own, is complete. Collective."""
    begin, end, distance = 0, len(sum_X), 1
    while distance < dist.get_world_size():
        middle = (begin + end) // 2
        low, high = slice(begin, middle), slice(middle, end)
        kept, sent = (low, high) if dist.get_rank() & distance == 0 else (high, low)
        sum_X[kept] += _exchange(sum_X[sent], dist.get_rank() ^ distance)
        begin, end = kept.start, kept.stop
        distance *= 2
    return begin, end


def _exchange(sent_S: Tensor, partner: int) -> Tensor:
    received_S = torch.empty_like(sent_S)
    operations = [dist.P2POp(dist.isend, sent_S, partner), dist.P2POp(dist.irecv, received_S, partner)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return received_S


def backward_with(engine: Any, parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor]) -> None:
    """Let `engine` run a backward pass in which `parameters` get `gradients`, cast to their types."""
    cast = [gradient.to(parameter.dtype) for parameter, gradient in zip(parameters, gradients, strict=True)]
    engine.backward(_LossWithGradients.apply(cast, *parameters))  # type: ignore[no-untyped-call]


class _LossWithGradients(torch.autograd.Function):
    """A loss of 0 whose backward pass returns the given gradients."""

    @staticmethod
    def forward(ctx: Any, gradients: list[Tensor], *parameters: nn.Parameter) -> Tensor:
        ctx.gradients = gradients
        return parameters[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.gradients
