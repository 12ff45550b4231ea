"""Attention problems, and the same attention by the kernels and by what else PyTorch has for it.

Shapes: N heads, B lanes, L segment, M memory, P predicted, Q = L + P rows, K = M + L keys, H head dim, R distances.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from pretrain.model.attention_scores import Distances, Queries, attend
from pretrain.model.fused.gpu.attend import attend_on_gpu
from pretrain.model.layout import AttentionMask, DistanceSpan, TokenLayout, join
from pretrain.orders.config import ObjectiveConfig

DOCUMENTS = "documents"
NAMES = ("output", "q", "bias of q for keys", "bias of q for distances", DOCUMENTS, "k", "v", "r")
"""The output, and the inputs whose gradients are compared."""
GAP_TOKENS = ObjectiveConfig().max_gap_tokens
Attention = Callable[[Queries, Tensor, Tensor, Distances, AttentionMask], Tensor]


@dataclass(frozen=True)
class Problem:
    """The inputs of an attention in the order of NAMES[1:], the gradient of its output, and its mask."""

    inputs: tuple[Tensor | None, ...]
    gradient_NBQH: Tensor
    mask: AttentionMask

    def to(self, dtype: torch.dtype) -> "Problem":
        """Return it in another type, with inputs that record gradients."""
        inputs = tuple(None if x is None else x.detach().to(dtype).requires_grad_() for x in self.inputs)
        return replace(self, inputs=inputs, gradient_NBQH=self.gradient_NBQH.to(dtype))

    def queries(self) -> Queries:
        """Return the queries with their biases."""
        query, content_bias, distance_bias, document, *_ = self.inputs
        assert query is not None
        return Queries(query, query.shape[-1] ** -0.5, content_bias, distance_bias, document)

    def mixed(self, attention: Attention) -> Tensor:
        """Return the output of an attention."""
        *_, key, value, table = self.inputs
        assert key is not None
        assert value is not None
        return attention(self.queries(), key, value, Distances(table, None), self.mask)

    def solve(self, attention: Attention, dtype: torch.dtype) -> list[Tensor | None]:
        """Return the output and the gradients, in the order of NAMES."""
        problem = self.to(dtype)
        mixed = problem.mixed(attention)
        mixed.backward(problem.gradient_NBQH)  # type: ignore[no-untyped-call]
        return [mixed.detach(), *(None if x is None else x.grad for x in problem.inputs)]


def one_stream(
    heads: int, lanes: int, length: int, head_dim: int, is_causal: bool, device: torch.device
) -> Problem:
    """Return a segment's own content rows, from left to right or in a random order of each lane, bfloat16."""
    draw = torch.Generator().manual_seed(0)
    order_BL = torch.arange(length).expand(lanes, -1)
    if not is_causal:
        order_BL = torch.rand(lanes, length, generator=draw).argsort(dim=1)
    rank_BL = order_BL.to(device)
    content = TokenLayout.contiguous(rank_BL, torch.zeros_like(rank_BL))
    mask = AttentionMask.of_streams(
        content, content.at(rank_BL[:, :0]), content, DistanceSpan.of_segment(length, 0)
    )
    return _with_inputs(mask, heads, head_dim, False, draw, device)


def two_streams(
    heads: int, lanes: int, length: int, memory: int, head_dim: int, device: torch.device
) -> Problem:
    """Return rows of both streams as training has them, bfloat16.

    Random orders, a gap, two groups of documents, and half of the memory unfilled.
    """
    draw = torch.Generator().manual_seed(0)
    rank_BL = torch.rand(lanes, length, generator=draw).argsort(dim=1)
    target_BP = torch.rand(lanes, length, generator=draw).argsort(dim=1)[:, : length // 2]
    group_BL = torch.randint(2, (lanes, length), generator=draw).sort(dim=1).values
    document_BL = 2 * group_BL + torch.randint(2, (lanes, length), generator=draw).sort(dim=1).values
    rank_BL, target_BP, group_BL, document_BL = (
        x.to(device) for x in (rank_BL, target_BP, group_BL, document_BL)
    )
    content = TokenLayout.contiguous(rank_BL, group_BL, document_BL)
    position_BL = content.position_BX + GAP_TOKENS * (content.position_BX >= length // 2)
    content = replace(content, position_BX=position_BL, extent=length + GAP_TOKENS)
    position_BM = torch.arange(-memory, 0, device=device).expand(lanes, -1)
    group_BM = torch.where(position_BM < -memory // 2, -1, 0)
    before = TokenLayout(
        position_BM, torch.full_like(position_BM, -1), group_BM, torch.zeros_like(group_BM), extent=0
    )
    span = DistanceSpan.of_segment(content.extent, memory)
    mask = AttentionMask.of_streams(content, content.at(target_BP), join(before, content), span)
    return _with_inputs(mask, heads, head_dim, True, draw, device)


def _with_inputs(
    mask: AttentionMask,
    heads: int,
    head_dim: int,
    has_documents: bool,
    draw: torch.Generator,
    device: torch.device,
) -> Problem:
    lanes, rows = mask.position_BQ.shape
    keys = mask.keys.position_BX.shape[1]

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=draw).to(device, torch.bfloat16)

    scale = head_dim**-0.5
    inputs = (
        normal(heads, lanes, rows, head_dim),
        normal(heads, head_dim) * scale,
        normal(heads, head_dim) * scale,
        normal(heads, lanes, rows, 2) if has_documents else None,
        normal(heads, lanes, keys, head_dim),
        normal(heads, lanes, keys, head_dim),
        normal(heads, len(mask.span), head_dim),
    )
    return Problem(inputs, normal(heads, lanes, rows, head_dim), mask)


def by_kernels(
    queries: Queries, key: Tensor, value: Tensor, distances: Distances, mask: AttentionMask
) -> Tensor:
    """Attend with the project's kernels."""
    return attend_on_gpu(queries, key, value, distances, mask)


def by_plain(
    queries: Queries, key: Tensor, value: Tensor, distances: Distances, mask: AttentionMask
) -> Tensor:
    """Attend in plain operations."""
    return attend(queries, key, value, distances, mask)


def position_scores(queries: Queries, distances: Distances) -> Tensor:
    """Return the scores of rows and distances, [N, B, Q, R]; distances run from the highest to the lowest."""
    assert distances.keys_NRH is not None
    return queries.of_distances() @ distances.keys_NRH[:, None].mT


def by_sdpa_with_mask(
    queries: Queries, key: Tensor, value: Tensor, distances: Distances, mask: AttentionMask
) -> Tensor:
    """Attend with PyTorch's SDPA, to which shifted position scores and visibility are given as a mask [B, N, Q, K]."""
    dense = mask.dense()
    index = dense.distance_index_BQK.expand(len(key), -1, -1, -1)
    shifted_NBQK = position_scores(queries, distances).gather(-1, index)
    added_NBQK = shifted_NBQK.masked_fill(~dense.visible_BQK, float("-inf"))
    mixed_BNQH = functional.scaled_dot_product_attention(
        _lanes_first(queries.of_keys()),
        _lanes_first(key),
        _lanes_first(value),
        attn_mask=_lanes_first(added_NBQK),
        scale=1.0,
    )
    return _lanes_first(mixed_BNQH)


def by_causal_flash(
    queries: Queries, key: Tensor, value: Tensor, distances: Distances, mask: AttentionMask
) -> Tensor:
    """Attend from left to right without positions, by FlashAttention: the limit of what is possible, not the same."""
    backends = [SDPBackend.FLASH_ATTENTION]
    if key.device.type != "cuda":
        backends.append(SDPBackend.MATH)
    with sdpa_kernel(backends):
        mixed_BNQH = functional.scaled_dot_product_attention(
            _lanes_first(queries.query_NBQH), _lanes_first(key), _lanes_first(value), is_causal=True
        )
    return _lanes_first(mixed_BNQH)


def by_flex(mask: AttentionMask, is_causal: bool) -> Attention:
    """Return an attention by FlexAttention, whose scores read an unshifted table of position scores.

    The block mask is made here: it is not in the time of a call.
    """
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    length, device = mask.position_BQ.shape[1], mask.position_BQ.device
    rank_BL, lanes = mask.keys.rank_BX, len(mask.position_BQ)

    def comes_before(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        return q >= kv if is_causal else rank_BL[b, kv] <= rank_BL[b, q]

    blocks = create_block_mask(
        comes_before, None if is_causal else lanes, None, length, length, device=str(device)
    )

    def attention(query: Tensor, key: Tensor, value: Tensor, scores_BNQR: Tensor) -> Tensor:
        def add_position(score: Tensor, b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
            # Distances run from L - 1 down to 1 - L: q - kv is in place L - 1 - (q - kv).
            return score + scores_BNQR[b, h, q, kv - q + length - 1]

        found = flex_attention(query, key, value, score_mod=add_position, block_mask=blocks, scale=1.0)
        assert isinstance(found, Tensor)
        return found

    if device.type == "cuda":
        # Too many compiled variants of one function, and PyTorch would go on without compiling.
        torch._dynamo.reset()
        attention = torch.compile(attention, dynamic=False)

    def by_flex_attention(
        queries: Queries, key: Tensor, value: Tensor, distances: Distances, _mask: AttentionMask
    ) -> Tensor:
        scores_BNQR = _lanes_first(position_scores(queries, distances)).contiguous()
        query, key, value = (_lanes_first(part) for part in (queries.of_keys(), key, value))
        return _lanes_first(attention(query, key, value, scores_BNQR))

    return by_flex_attention


def _lanes_first(heads_NBXX: Tensor) -> Tensor:
    return heads_NBXX.transpose(0, 1)
