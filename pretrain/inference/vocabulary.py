"""Which tokens may be written, and which end a text."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TokenRules:
    """Tokens that decoding never chooses, and the one that ends a text (chosen, but not part of it)."""

    never: tuple[int, ...] = ()
    end: int | None = None

    def allow(self, logits_XV: Tensor) -> Tensor:
        """The scores with those of `never` at minus infinity."""
        if not self.never:
            return logits_XV
        never = torch.tensor(self.never, device=logits_XV.device)
        return logits_XV.index_fill(-1, never, -torch.inf)
