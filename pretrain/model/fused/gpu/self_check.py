"""A small problem that the compiled kernels must solve as the plain operations do, before a process relies on them.

Shapes: N heads, B lanes, L segment, M memory, P predicted, Q = L + P rows, K = M + L keys, H head dim, R distances.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pretrain.model.attention_scores import Distances, Queries, attend
from pretrain.model.fused.gpu.attend import attend_on_gpu
from pretrain.model.fused.gpu.dropout import kept_weights
from pretrain.model.layout import UNFILLED_GROUP, AttentionMask, DistanceSpan, TokenLayout, join

_HEADS, _LANES, _LENGTH, _MEMORY, _PREDICTED = 2, 2, 208, 96, 80
_TOLERANCES = {torch.bfloat16: 0.05, torch.float32: 0.002}
"""Of the largest number of each result; bfloat16 has 8 bits, and the products of float32 are made of three of TF32."""


@dataclass(frozen=True)
class Features:
    """What the kernels are compiled for, besides the GPU."""

    dtype: torch.dtype
    head_dim: int
    gap_tokens: int | None
    has_distances: bool
    has_biases: bool
    has_documents: bool
    dropout: float

    def __str__(self) -> str:
        gap = "scattered rows" if self.gap_tokens is None else f"gaps up to {self.gap_tokens}"
        return f"{self.dtype}, head dimension {self.head_dim}, {gap}".removeprefix("torch.")


def deviation(features: Features, device: torch.device) -> str:
    """Return in one line how the kernels' results differ from the plain operations'; empty if they do not.

    Raises what Triton raises for a kernel that does not compile or does not fit.
    """
    problem = _Problem.of(features, device)
    found = problem.solve(
        lambda queries, key, value, distances, mask: attend_on_gpu(
            queries, key, value, distances, mask, features.dropout
        ),
        features.dtype,
    )
    expected = problem.solve(problem.plain, torch.float32)
    tolerance = _TOLERANCES[features.dtype]
    for name, one, other in zip(_NAMES, found, expected, strict=True):
        if one is None or other is None:
            continue
        error = float((one.float() - other).abs().max() / other.abs().max().clamp(min=1e-6))
        if not error <= tolerance:
            return f"{name} differ by {error:.2g} of their largest number"
    return ""


_NAMES = (
    "outputs",
    *(f"gradients of {name}" for name in ("queries", "content biases", "distance biases")),
    *(f"gradients of {name}" for name in ("document scores", "keys", "values", "distance keys")),
)


@dataclass(frozen=True)
class _Problem:
    inputs: list[Tensor | None]
    gradient_NBQH: Tensor
    mask: AttentionMask
    seed: int
    dropout: float

    @classmethod
    def of(cls, features: Features, device: torch.device) -> "_Problem":
        draw = torch.Generator().manual_seed(0)

        def normal(*size: int) -> Tensor:
            return torch.randn(*size, generator=draw).to(device, features.dtype)

        mask, rows = _mask(features, device, draw)
        heads, dim, scale = (_HEADS, _LANES), features.head_dim, features.head_dim**-0.5
        keys, num_distances = _LENGTH + _MEMORY, len(mask.span)
        has_biases, has_distances = features.has_biases, features.has_distances
        inputs = [
            normal(*heads, rows, dim),
            normal(_HEADS, dim) * scale if has_biases else None,
            normal(_HEADS, dim) * scale if has_biases and has_distances else None,
            normal(*heads, rows, 2) if features.has_documents else None,
            normal(*heads, keys, dim),
            normal(*heads, keys, dim),
            normal(_HEADS, num_distances, dim) if has_distances else None,
        ]
        return cls(inputs, normal(*heads, rows, dim), mask, 0, features.dropout)

    def solve(self, attention: Callable[..., Tensor], dtype: torch.dtype) -> list[Tensor | None]:
        """Return the output and the gradients; the generator of the CPU is left as it was."""
        inputs = [None if x is None else x.detach().to(dtype).requires_grad_() for x in self.inputs]
        query, content, distance_bias, document, key, value, table = inputs
        assert query is not None
        queries = Queries(query, query.shape[-1] ** -0.5, content, distance_bias, document)
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(self.seed)
            mixed = attention(queries, key, value, Distances(table, None), self.mask)
            mixed.backward(self.gradient_NBQH.to(dtype))  # type: ignore[no-untyped-call]
        return [mixed.detach(), *(None if x is None else x.grad for x in inputs)]

    def plain(
        self, queries: Queries, key: Tensor, value: Tensor, distances: Distances, mask: AttentionMask
    ) -> Tensor:
        """Attend in plain operations, with the kernels' dropout."""
        if self.dropout == 0.0:
            return attend(queries, key, value, distances, mask)
        # Values that are a unit matrix give the weights.
        lanes, num_keys = key.shape[1:3]
        unit = torch.eye(num_keys, device=key.device, dtype=key.dtype).expand(_HEADS, lanes, -1, -1)
        weight = attend(queries, key, unit, distances, mask)
        drawn = int(torch.randint(2**63 - 1, ()))
        kept = kept_weights(drawn, self.dropout, _HEADS, lanes, weight.shape[2], num_keys, key.device)
        return (weight * kept / (1 - self.dropout)) @ value


def _mask(features: Features, device: torch.device, draw: torch.Generator) -> tuple[AttentionMask, int]:
    """Return a mask of random orders over two groups, half of the memory unfilled, and its number of rows."""

    def integers(count: int, *size: int) -> Tensor:
        return torch.randint(0, count, size, generator=draw).to(device)

    gap = features.gap_tokens or 0
    group_BL = integers(2, _LANES, _LENGTH).sort(dim=1).values
    document_BL = group_BL * 2 + integers(2, _LANES, _LENGTH).sort(dim=1).values
    position_L = torch.arange(_LENGTH, device=device)
    position_BL = (position_L + gap * (position_L >= _LENGTH // 2)).expand(_LANES, -1)
    content = TokenLayout(
        position_BL,
        integers(_LENGTH, _LANES, _LENGTH),
        group_BL,
        document_BL if features.has_documents else None,
        _LENGTH + gap,
    )
    group_BM = torch.full((_LANES, _MEMORY), UNFILLED_GROUP, device=device)
    group_BM[:, _MEMORY // 2 :] = 0
    memory = TokenLayout(
        torch.arange(-_MEMORY, 0, device=device).expand(_LANES, -1),
        torch.full((_LANES, _MEMORY), -1, device=device),
        group_BM,
        torch.zeros_like(group_BM) if features.has_documents else None,
        extent=0,
    )
    targets = content.at(integers(_LENGTH, _LANES, _PREDICTED))
    span = DistanceSpan.of_segment(content.extent, _MEMORY)
    mask = AttentionMask.of_streams(content, targets, join(memory, content), span)
    if features.gap_tokens is None:
        return mask.rows_from(_LENGTH), _PREDICTED
    return mask, _LENGTH + _PREDICTED
