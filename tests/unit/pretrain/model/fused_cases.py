"""Attention problems for the fused operators, and the same in the plainest tensor operations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pretrain.model.attention_scores import Distances, Queries
from pretrain.model.fused.attend import attend_fused
from pretrain.model.layout import UNFILLED_GROUP, AttentionMask, DistanceSpan, TokenLayout, join
from tests.rounding import OTHER_ROUNDINGS, assert_rounded

FAR_GROUP = 1 << 40
"""Groups are hashes: they do not fit into 32 bits."""
NAMES = (
    "mixed",
    "query",
    "content bias",
    "distance bias",
    "document",
    "key",
    "value",
    "distance keys",
)


@dataclass(frozen=True)
class Shape:
    """One problem's sizes; `gap` leaves out positions in the middle of the segment."""

    heads: int = 2
    lanes: int = 2
    length: int = 9
    memory: int = 5
    predicted: int = 3
    head_dim: int = 8
    gap: int = 0
    distances: bool = True
    documents: bool = True
    biases: bool = True


@dataclass(frozen=True)
class Problem:
    """Inputs in the order of NAMES[1:], None for those left out; float64."""

    inputs: tuple[Tensor | None, ...]
    gradient_NBQH: Tensor
    mask: AttentionMask


def make_problem(shape: Shape, seed: int = 0) -> Problem:
    """Random orders, groups that differ in their high bits only, half of the memory unfilled."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=draw, dtype=torch.float64)

    def integers(count: int, *size: int) -> Tensor:
        return torch.randint(0, count, size, generator=draw)

    lanes, length = shape.lanes, shape.length
    group_BL = integers(2, lanes, length).sort(dim=1).values * FAR_GROUP + 7
    document_BL = integers(3, lanes, length).sort(dim=1).values if shape.documents else None
    content = TokenLayout.contiguous(integers(length, lanes, length), group_BL, document_BL)
    position_BL = content.position_BX + shape.gap * (content.position_BX >= length // 2)
    content = replace(content, position_BX=position_BL, extent=length + shape.gap)
    group_BM = torch.full((lanes, shape.memory), UNFILLED_GROUP)
    group_BM[:, shape.memory // 2 :] = 7
    memory = TokenLayout(
        torch.arange(-shape.memory, 0).expand(lanes, -1),
        torch.full((lanes, shape.memory), -1),
        group_BM,
        torch.zeros_like(group_BM) if shape.documents else None,
        extent=0,
    )
    keys = join(memory, content)
    targets = content.at(integers(length, lanes, shape.predicted))
    span = DistanceSpan.of_segment(content.extent, shape.memory)
    heads = (shape.heads, lanes)
    rows, num_keys, scale = length + shape.predicted, length + shape.memory, shape.head_dim**-0.5
    bias_shape = (shape.heads, shape.head_dim)
    inputs = (
        normal(*heads, rows, shape.head_dim),
        normal(*bias_shape) * scale if shape.biases else None,
        normal(*bias_shape) * scale if shape.biases and shape.distances else None,
        normal(*heads, rows, 2) if shape.documents else None,
        normal(*heads, num_keys, shape.head_dim),
        normal(*heads, num_keys, shape.head_dim),
        normal(shape.heads, len(span), shape.head_dim) if shape.distances else None,
    )
    gradient_NBQH = normal(*heads, rows, shape.head_dim)
    return Problem(inputs, gradient_NBQH, AttentionMask.of_streams(content, targets, keys, span))


def plainest(
    queries: Queries, key: Tensor, value: Tensor, distances: Distances, mask: AttentionMask
) -> Tensor:
    """Attention as its definition reads; distances outside the span take its ends."""
    return _weights(_scores(queries, key, distances, mask), mask) @ value


def _scores(queries: Queries, key: Tensor, distances: Distances, mask: AttentionMask) -> Tensor:
    keys, span = mask.keys, mask.span
    scaled = queries.query_NBQH * queries.scale
    score = _plus(scaled, queries.content_bias_NH) @ key.mT
    if distances.keys_NRH is not None:
        distance = mask.position_BQ[:, :, None] - keys.position_BX[:, None, :]
        row = (span.high - distance.clamp(span.low, span.high)).expand_as(score)
        score = score + (_plus(scaled, queries.distance_bias_NH) @ distances.keys_NRH[:, None].mT).gather(
            -1, row
        )
    if queries.document_NBQ2 is not None and mask.document_BQ is not None and keys.document_BX is not None:
        other = mask.document_BQ[:, :, None] != keys.document_BX[:, None, :]
        score = score + torch.where(other, queries.document_NBQ2[..., 1:], queries.document_NBQ2[..., :1])
    return score


def _weights(score: Tensor, mask: AttentionMask) -> Tensor:
    keys = mask.keys
    visible = (mask.group_BQ[:, :, None] == keys.group_BX[:, None, :]) & (
        keys.rank_BX[:, None, :] < mask.bound_BQ[:, :, None]
    )
    visible = visible & (keys.group_BX != UNFILLED_GROUP)[:, None, :]
    return torch.where(visible, score, -1e300).softmax(dim=-1) * visible


def _plus(query_NBQH: Tensor, bias_NH: Tensor | None) -> Tensor:
    return query_NBQH if bias_NH is None else query_NBQH + bias_NH[:, None, None]


def queries_of(inputs: Sequence[Tensor | None]) -> Queries:
    """The queries among a problem's inputs."""
    query, content_bias, distance_bias, document = inputs[:4]
    assert query is not None
    return Queries(query, query.shape[-1] ** -0.5, content_bias, distance_bias, document)


def solved(problem: Problem, dtype: torch.dtype, attention=attend_fused) -> list[Tensor | None]:
    """What NAMES names: the result, then the gradients of the inputs."""
    inputs = [None if x is None else x.to(dtype).clone().requires_grad_() for x in problem.inputs]
    *_, key, value, table = inputs
    mixed = attention(queries_of(inputs), key, value, Distances(table, None), problem.mask)
    mixed.backward(problem.gradient_NBQH.to(dtype))
    return [mixed.detach(), *(None if x is None else x.grad for x in inputs)]


def magnitudes(problem: Problem) -> list[Tensor | None]:
    """What the terms of each number of `solved` come to when nothing cancels: the same sums of absolute values.

    A weight's relative error is that of its score and of the scores it is divided by, each a sum too.
    """
    *_, key, value, table = problem.inputs
    assert key is not None
    assert value is not None
    weight = _weights(
        _scores(queries_of(problem.inputs), key, Distances(table, None), problem.mask), problem.mask
    )
    sizes = [None if x is None else x.abs().requires_grad_() for x in problem.inputs]
    *_, key, value, table = sizes
    assert key is not None
    assert value is not None
    score_size = _scores(queries_of(sizes), key, Distances(table, None), problem.mask)
    seen_size = torch.where(weight > 0, score_size, 0.0).detach()
    weight_size = weight * (1 + seen_size + seen_size.amax(dim=-1, keepdim=True))
    mixed = weight_size @ value
    (value_size,) = torch.autograd.grad(mixed, value, problem.gradient_NBQH.abs())
    # The gradient of a score is w (g - sum of w g), where g is that of a weight.
    gradient = problem.gradient_NBQH.abs() @ value.detach().mT
    mean, mean_size = ((each * gradient).sum(dim=-1, keepdim=True) for each in (weight, weight_size))
    score_size.backward(weight_size * (gradient + mean) + weight * mean_size)
    value.grad = value_size
    return [mixed.detach(), *(None if x is None else x.grad for x in sizes)]


def assert_solved(problem: Problem, found: Sequence[Tensor | None], exact: Sequence[Tensor | None]) -> None:
    """What `solved` gave in float32 is what it gives in float64, but for rounding."""
    _, lanes, rows, head_dim = problem.gradient_NBQH.shape
    num_roundings = head_dim + problem.mask.keys.position_BX.shape[1] + lanes * rows + OTHER_ROUNDINGS
    for name, one, other, magnitude in zip(NAMES, found, exact, magnitudes(problem), strict=True):
        assert (one is None) == (other is None) == (magnitude is None), name
        if one is not None and other is not None and magnitude is not None:
            assert_rounded(one, other, magnitude, num_roundings, name)


def relative_error(value: Tensor, reference: Tensor) -> float:
    """||value - reference|| / ||reference||; small references count as if their elements were 0.1."""
    least = 0.1 * reference.numel() ** 0.5
    return float((value.double() - reference).norm() / max(float(reference.norm()), least, 1e-9))
