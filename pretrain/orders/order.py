"""Orders of prediction, one per lane.

Shapes: B lanes, L segment, P predicted.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pretrain.model.layout import TokenLayout, causal_ranks


@dataclass(frozen=True)
class Orders:
    """The tokens that are predicted, their order, and the positions of all tokens.

    The context has rank 0, predictions have ascending ranks from 1 on in the order in which they are made, tokens that
    come after the last one have higher ranks. Where `ends_hole_BP` is true, the prediction is not the token with index
    `target_BP` but the end of the hole after it: one position and one rank further, where there is no token.
    """

    position_BL: Tensor
    """int64, increasing; a gap follows a hole of unknown length."""
    rank_BL: Tensor
    """int64."""
    target_BP: Tensor
    """int64, index of the token of each prediction, in the order in which they are made."""
    ends_hole_BP: Tensor
    """bool."""

    @classmethod
    def of_tokens(cls, rank_BL: Tensor, target_BP: Tensor) -> "Orders":
        """Make orders that predict tokens only and leave no gap."""
        position_L = torch.arange(rank_BL.shape[1], device=rank_BL.device)
        ends_hole_BP = torch.zeros_like(target_BP, dtype=torch.bool)
        return cls(position_L.expand_as(rank_BL), rank_BL, target_BP, ends_hole_BP)

    def causal(self) -> "Orders":
        """Return these orders with a context of which each token sees only those before it in the text."""
        return replace(self, rank_BL=causal_ranks(self.rank_BL))

    def where(self, mine_B: Tensor, other: "Orders") -> "Orders":
        """Return these orders in the lanes `mine_B`, the other ones elsewhere."""
        mine_B1 = mine_B[:, None]
        return Orders(
            torch.where(mine_B1, self.position_BL, other.position_BL),
            torch.where(mine_B1, self.rank_BL, other.rank_BL),
            torch.where(mine_B1, self.target_BP, other.target_BP),
            torch.where(mine_B1, self.ends_hole_BP, other.ends_hole_BP),
        )

    def layouts(
        self, group_BL: Tensor, document_BL: Tensor | None, extent: int
    ) -> tuple[TokenLayout, TokenLayout]:
        """Return the layouts of tokens [B, L] and predictions [B, P]; a hole's end has its last token's group."""
        content = TokenLayout(self.position_BL, self.rank_BL, group_BL, document_BL, extent)
        tokens = content.at(self.target_BP)
        after_BP = self.ends_hole_BP.long()
        targets = TokenLayout(
            tokens.position_BX + after_BP,
            tokens.rank_BX + after_BP,
            tokens.group_BX,
            tokens.document_BX,
            extent,
        )
        return content, targets

    def wanted(self, tokens_BL: Tensor, end_hole_id: int) -> Tensor:
        """Return the tokens [B, P] to predict."""
        return tokens_BL.gather(1, self.target_BP).masked_fill(self.ends_hole_BP, end_hole_id)
