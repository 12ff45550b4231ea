"""Where tokens stand: in the text, in the order of prediction, among documents; and who sees whom.

Shapes: B lanes, L segment, M memory, K = M + L keys, P predicted, Q rows (content rows, then predicted ones),
X any of them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

UNFILLED_GROUP = -1
"""The group of padding and of memory that nothing was written to: nobody sees it."""

BEFORE_ALL_RANKS = -1
"""The rank of memory; ranks of a segment start at 0."""


@dataclass(frozen=True)
class Places:
    """int64 [B, X] each: position in the text, rank in the order, document group, document.

    Tokens of equal rank see each other in the content stream: the context of an order, given and not predicted,
    shares rank 0. Positions are below `extent`, counted from the segment's first token; they follow each other but
    where an order leaves a gap. `document_BX` is what segment encodings compare; None leaves them out.
    """

    position_BX: Tensor
    rank_BX: Tensor
    group_BX: Tensor
    document_BX: Tensor | None
    extent: int

    @classmethod
    def in_order(cls, rank_BL: Tensor, group_BL: Tensor, document_BL: Tensor | None = None) -> "Places":
        """Places of a segment without gaps."""
        length = rank_BL.shape[1]
        position_L = torch.arange(length, device=rank_BL.device)
        return cls(position_L.expand_as(rank_BL), rank_BL, group_BL, document_BL, length)

    @classmethod
    def given(cls, group_BL: Tensor) -> "Places":
        """Places of a text that is read in both directions."""
        return cls.in_order(torch.zeros_like(group_BL), group_BL)

    def part(self, start: int, stop: int) -> "Places":
        """Those of the lanes [start, stop)."""
        document_BX = self.document_BX
        return Places(
            self.position_BX[start:stop],
            self.rank_BX[start:stop],
            self.group_BX[start:stop],
            None if document_BX is None else document_BX[start:stop],
            self.extent,
        )

    def at(self, index_BP: Tensor) -> "Places":
        """The places of the tokens that `index_BP` points at."""
        document_BX = self.document_BX
        return Places(
            self.position_BX.gather(1, index_BP),
            self.rank_BX.gather(1, index_BP),
            self.group_BX.gather(1, index_BP),
            None if document_BX is None else document_BX.gather(1, index_BP),
            self.extent,
        )


def join(first: Places, second: Places) -> Places:
    """The places of both, side by side; documents only where both have them."""
    document_BX = None
    if first.document_BX is not None and second.document_BX is not None:
        document_BX = torch.cat([first.document_BX, second.document_BX], dim=1)
    return Places(
        torch.cat([first.position_BX, second.position_BX], dim=1),
        torch.cat([first.rank_BX, second.rank_BX], dim=1),
        torch.cat([first.group_BX, second.group_BX], dim=1),
        document_BX,
        max(first.extent, second.extent),
    )


@dataclass(frozen=True)
class DistanceSpan:
    """The distances (query's position - key's position) that a model must tell apart: low <= distance <= high.

    Tables of distances run from `high` down to `low`, so that a query meets keys in their order.
    """

    low: int
    high: int

    def __len__(self) -> int:
        return self.high - self.low + 1

    @classmethod
    def of_segment(cls, extent: int, memory_tokens: int) -> "DistanceSpan":
        """Everything that can occur in a segment of positions below `extent` with memory before it."""
        return cls(low=1 - extent, high=memory_tokens + extent - 1)


class Sight:
    """Which keys each row sees, and how far they are; computed once and used by every layer.

    A row sees the keys of its own group whose rank is below its `bound`: a content row its own rank and all before
    it, a predicted row only what comes before it. Rows that see nothing get a zero from attention, never an average
    of what they may not see.
    """

    def __init__(
        self,
        position_BQ: Tensor,
        bound_BQ: Tensor,
        group_BQ: Tensor,
        document_BQ: Tensor | None,
        keys: Places,
        span: DistanceSpan,
    ) -> None:
        self.position_BQ, self.bound_BQ = position_BQ, bound_BQ
        self.group_BQ, self.document_BQ = group_BQ, document_BQ
        self.keys, self.span = keys, span
        self._dense: DenseSight | None = None

    @classmethod
    def of_streams(cls, content: Places, predicted: Places, keys: Places, span: DistanceSpan) -> "Sight":
        """Content rows, then predicted rows; either may be empty."""
        both = join(content, predicted)
        bound_BQ = torch.cat([content.rank_BX + 1, predicted.rank_BX], dim=1)
        return cls(both.position_BX, bound_BQ, both.group_BX, both.document_BX, keys, span)

    def rows_from(self, first: int) -> "Sight":
        """The sight of rows [first, Q) alone."""
        document_BQ = None if self.document_BQ is None else self.document_BQ[:, first:]
        return Sight(
            self.position_BQ[:, first:],
            self.bound_BQ[:, first:],
            self.group_BQ[:, first:],
            document_BQ,
            self.keys,
            self.span,
        )

    def dense(self) -> "DenseSight":
        """The same as a tensor element for every pair; made at the first call."""
        if self._dense is None:
            self._dense = DenseSight.of(self)
        return self._dense


@dataclass(frozen=True)
class DenseSight:
    """`Sight` for plain tensor operations, an element for every row and key."""

    visible_BQK: Tensor
    sees_any_BQ1: Tensor
    """Whether a row sees anything at all."""
    table_row_BQK: Tensor
    """Row of a distance table; distances outside the span take its ends."""
    other_document_BQK: Tensor | None
    """Whether row and key belong to different documents; None without segment encodings."""

    @classmethod
    def of(cls, sight: Sight) -> "DenseSight":
        """Compare every row with every key."""
        keys = sight.keys
        same_BQK = sight.group_BQ[:, :, None] == keys.group_BX[:, None, :]
        filled_B1K = (keys.group_BX != UNFILLED_GROUP)[:, None, :]
        visible_BQK = same_BQK & filled_B1K & (keys.rank_BX[:, None, :] < sight.bound_BQ[:, :, None])
        distance_BQK = sight.position_BQ[:, :, None] - keys.position_BX[:, None, :]
        other_document_BQK = None
        if sight.document_BQ is not None and keys.document_BX is not None:
            other_document_BQK = sight.document_BQ[:, :, None] != keys.document_BX[:, None, :]
        return cls(
            visible_BQK,
            visible_BQK.any(dim=-1, keepdim=True),
            sight.span.high - distance_BQK.clamp(sight.span.low, sight.span.high),
            other_document_BQK,
        )
