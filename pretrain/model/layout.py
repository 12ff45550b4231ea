"""The layout of tokens (position, rank in the order, document group) and the attention mask that follows from it.

Shapes: B lanes, L segment, M memory, K = M + L keys, P predicted, Q rows (content rows, then predicted ones),
X any of them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

UNFILLED_GROUP = -1
"""The group of padding and of unfilled memory, which no row attends to."""

BEFORE_ALL_RANKS = -1
"""The rank of memory; ranks of a segment start at 0."""


def causal_ranks(rank_BX: Tensor) -> Tensor:
    """Return ranks in which the context, which has rank 0, comes first and one by one; higher ranks keep their order.

    So a token of the context sees the context before it, in the order of X, and no other.
    """
    is_context_BX = rank_BX == 0
    num_before_BX = is_context_BX.cumsum(dim=1)
    return torch.where(is_context_BX, num_before_BX, num_before_BX[:, -1:] + rank_BX)


@dataclass(frozen=True)
class TokenLayout:
    """Position in the text, rank in the order, document group and document of tokens or predictions, int64 [B, X].

    Content rows of equal rank attend to each other: the context of an order, which is given and not predicted, shares
    rank 0. Positions are below `extent` and count from the segment's first token; they are consecutive unless an order
    leaves a gap. Segment encodings compare `document_BX`; None switches them off.
    """

    position_BX: Tensor
    rank_BX: Tensor
    group_BX: Tensor
    document_BX: Tensor | None
    extent: int

    @classmethod
    def contiguous(
        cls, rank_BL: Tensor, group_BL: Tensor, document_BL: Tensor | None = None
    ) -> "TokenLayout":
        """Make the layout of a segment whose positions have no gaps."""
        length = rank_BL.shape[1]
        position_L = torch.arange(length, device=rank_BL.device)
        return cls(position_L.expand_as(rank_BL), rank_BL, group_BL, document_BL, length)

    @classmethod
    def bidirectional(cls, group_BL: Tensor) -> "TokenLayout":
        """Make the layout of a text that is read in both directions."""
        return cls.contiguous(torch.zeros_like(group_BL), group_BL)

    def part(self, start: int, stop: int) -> "TokenLayout":
        """Return the layout of lanes [start, stop)."""
        document_BX = self.document_BX
        return TokenLayout(
            self.position_BX[start:stop],
            self.rank_BX[start:stop],
            self.group_BX[start:stop],
            None if document_BX is None else document_BX[start:stop],
            self.extent,
        )

    def at(self, index_BP: Tensor) -> "TokenLayout":
        """Return the layout of the tokens with indices `index_BP`."""
        document_BX = self.document_BX
        return TokenLayout(
            self.position_BX.gather(1, index_BP),
            self.rank_BX.gather(1, index_BP),
            self.group_BX.gather(1, index_BP),
            None if document_BX is None else document_BX.gather(1, index_BP),
            self.extent,
        )


def join(first: TokenLayout, second: TokenLayout) -> TokenLayout:
    """Return the layouts side by side; documents only where both have them."""
    document_BX = None
    if first.document_BX is not None and second.document_BX is not None:
        document_BX = torch.cat([first.document_BX, second.document_BX], dim=1)
    return TokenLayout(
        torch.cat([first.position_BX, second.position_BX], dim=1),
        torch.cat([first.rank_BX, second.rank_BX], dim=1),
        torch.cat([first.group_BX, second.group_BX], dim=1),
        document_BX,
        max(first.extent, second.extent),
    )


@dataclass(frozen=True)
class DistanceSpan:
    """The relative distances (query's position - key's position) of a pass: low <= distance <= high.

    Tables of distances run from `high` down to `low`, so that a query meets keys in their order.
    """

    low: int
    high: int

    def __len__(self) -> int:
        return self.high - self.low + 1

    @classmethod
    def of_segment(cls, extent: int, memory_tokens: int) -> "DistanceSpan":
        """Return all distances that can occur in a segment of positions below `extent` with memory before it."""
        return cls(low=1 - extent, high=memory_tokens + extent - 1)


class AttentionMask:
    """The keys that each row attends to, and their relative distances; computed once and used by every layer.

    A row attends to the keys of its own group whose rank is below its `bound`: a content row to its own rank and all
    before it, a predicted row only to the ranks before its own. Attention of a row without any visible key is zero,
    never an average of masked keys.
    """

    def __init__(
        self,
        position_BQ: Tensor,
        bound_BQ: Tensor,
        group_BQ: Tensor,
        document_BQ: Tensor | None,
        keys: TokenLayout,
        span: DistanceSpan,
        largest_gap_tokens: int | None = None,
    ) -> None:
        self.position_BQ, self.bound_BQ = position_BQ, bound_BQ
        self.group_BQ, self.document_BQ = group_BQ, document_BQ
        self.keys, self.span = keys, span
        self.largest_gap_tokens = largest_gap_tokens
        """How many positions may lack between the first and the last of any rows that are consecutive in the text; None
        if the rows are not those of a whole segment, with or without predictions."""
        self.derived: dict[str, Tensor] = {}
        """What operators have made of the mask, by their names; every layer uses the same mask."""
        self._dense: DenseMask | None = None

    @property
    def memory_tokens(self) -> int:
        """How many positions keys may have before the segment's first."""
        return self.span.high - self.keys.extent + 1

    @classmethod
    def of_streams(
        cls, content: TokenLayout, predicted: TokenLayout, keys: TokenLayout, span: DistanceSpan
    ) -> "AttentionMask":
        """Make the mask of content rows followed by predicted rows; either may be empty."""
        both = join(content, predicted)
        bound_BQ = torch.cat([content.rank_BX + 1, predicted.rank_BX], dim=1)
        length = content.position_BX.shape[1]
        gap_tokens = content.extent - length if length else None
        return cls(both.position_BX, bound_BQ, both.group_BX, both.document_BX, keys, span, gap_tokens)

    def rows_from(self, first: int) -> "AttentionMask":
        """Return the mask of rows [first, Q)."""
        document_BQ = None if self.document_BQ is None else self.document_BQ[:, first:]
        return AttentionMask(
            self.position_BQ[:, first:],
            self.bound_BQ[:, first:],
            self.group_BQ[:, first:],
            document_BQ,
            self.keys,
            self.span,
        )

    def dense(self) -> "DenseMask":
        """Return the mask with a tensor element for every pair of row and key; made at the first call."""
        if self._dense is None:
            self._dense = DenseMask.of(self)
        return self._dense


@dataclass(frozen=True)
class DenseMask:
    """An `AttentionMask` for plain tensor operations: an element for every row and key."""

    visible_BQK: Tensor
    sees_any_BQ1: Tensor
    """Whether a row sees any key."""
    distance_index_BQK: Tensor
    """The relative shift: the row of a distance table for each pair; distances outside the span take its ends."""
    other_document_BQK: Tensor | None
    """Whether row and key belong to different documents; None without segment encodings."""

    @classmethod
    def of(cls, mask: AttentionMask) -> "DenseMask":
        """Make it by comparing every row with every key."""
        keys = mask.keys
        same_BQK = mask.group_BQ[:, :, None] == keys.group_BX[:, None, :]
        filled_B1K = (keys.group_BX != UNFILLED_GROUP)[:, None, :]
        visible_BQK = same_BQK & filled_B1K & (keys.rank_BX[:, None, :] < mask.bound_BQ[:, :, None])
        distance_BQK = mask.position_BQ[:, :, None] - keys.position_BX[:, None, :]
        other_document_BQK = None
        if mask.document_BQ is not None and keys.document_BX is not None:
            other_document_BQK = mask.document_BQ[:, :, None] != keys.document_BX[:, None, :]
        return cls(
            visible_BQK,
            visible_BQK.any(dim=-1, keepdim=True),
            mask.span.high - distance_BQK.clamp(mask.span.low, mask.span.high),
            other_document_BQK,
        )
