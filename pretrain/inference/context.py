"""The context: tokens that are given before new ones are chosen, by column.

Shapes: B lanes, T columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Context:
    """tokens_BT and before_BT are int64, given_BT is bool, all [B, T].

    given: whether there is a token; false in padding and holes, where `tokens_BT` does not matter.
    before: 0 if it belongs to the text, 1 if to the document before it, as the `<eod>` before every text does, 2 if to
    the one before that, and so on.
    """

    tokens_BT: Tensor
    given_BT: Tensor
    before_BT: Tensor

    @property
    def num_columns(self) -> int:
        """T."""
        return self.tokens_BT.shape[1]

    def part(self, first: int, end: int) -> "Context":
        """Return columns [first, end)."""
        return Context(
            self.tokens_BT[:, first:end], self.given_BT[:, first:end], self.before_BT[:, first:end]
        )

    @classmethod
    def of_text(cls, tokens_BT: Tensor) -> "Context":
        """Make a context of tokens of the text itself, without a gap."""
        given_BT = torch.ones_like(tokens_BT, dtype=torch.bool)
        return cls(tokens_BT, given_BT, torch.zeros_like(tokens_BT))

    @classmethod
    def of_prompts(cls, prompts: Sequence[NDArray[np.int64]], device: torch.device) -> "Context":
        """Make a context of prompts that end in one column; their first tokens belong to the document before."""
        longest = max(map(len, prompts))
        tokens_BT = torch.zeros(len(prompts), longest, dtype=torch.int64)
        given_BT = torch.zeros(len(prompts), longest, dtype=torch.bool)
        before_BT = torch.zeros_like(tokens_BT)
        for lane, prompt in enumerate(prompts):
            first = longest - len(prompt)
            tokens_BT[lane, first:] = torch.from_numpy(prompt)
            given_BT[lane, first:] = True
            before_BT[lane, first : first + 1] = 1
        return cls(tokens_BT.to(device), given_BT.to(device), before_BT.to(device))
