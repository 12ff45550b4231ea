"""The sizes that contenders are compared at, and one step's input.

Shapes: B lanes, L segment, P predicted.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Size:
    """The shape of a model and of its step."""

    name: str
    model_dim: int
    num_layers: int
    num_heads: int
    ffn_dim: int
    vocab_size: int
    segment_tokens: int
    memory_tokens: int
    lanes: int

    @property
    def num_tokens(self) -> int:
        """Tokens of one step."""
        return self.lanes * self.segment_tokens


SIZES = {
    size.name: size
    for size in (
        Size("tiny", 64, 2, 2, 256, 512, segment_tokens=64, memory_tokens=48, lanes=2),
        Size("S", 256, 6, 4, 1024, 8192, segment_tokens=256, memory_tokens=192, lanes=8),
        Size("M", 512, 8, 8, 2048, 16384, segment_tokens=512, memory_tokens=384, lanes=2),
        Size("base", 768, 12, 12, 3072, 32000, segment_tokens=512, memory_tokens=384, lanes=8),
    )
}


@dataclass(frozen=True)
class Batch:
    """One step's input: int64 tokens [B, L], rank of every token [B, L] (0 is context), predicted indices [B, P]."""

    tokens_BL: Tensor
    rank_BL: Tensor
    target_BP: Tensor

    @classmethod
    def random(cls, size: Size, num_targets: int, seed: int, device: str = "cpu") -> "Batch":
        """Return random tokens of which `num_targets` per lane are predicted in random order."""
        generator = torch.Generator().manual_seed(seed)
        shape = (size.lanes, size.segment_tokens)
        tokens_BL = torch.randint(0, size.vocab_size, shape, generator=generator)
        target_BP = torch.rand(shape, generator=generator).argsort(dim=1)[:, :num_targets]
        rank_BL = torch.zeros_like(tokens_BL)
        rank_BL.scatter_(1, target_BP, torch.arange(1, num_targets + 1).expand_as(target_BP))
        return cls(tokens_BL.to(device), rank_BL.to(device), target_BP.to(device))

    @property
    def labels_BP(self) -> Tensor:
        """The predicted tokens."""
        return self.tokens_BL.gather(1, self.target_BP)

    def perm_mask_BLL(self, dtype: torch.dtype) -> Tensor:
        """Return Hugging Face's form of the order: 1 where a row must not see a column.

        A predicted row sees the tokens strictly before it in the order, a context row sees the whole context.
        """
        row_BL1, column_B1L = self.rank_BL[:, :, None], self.rank_BL[:, None, :]
        hidden_BLL = torch.where(row_BL1 > 0, column_B1L >= row_BL1, column_B1L > row_BL1)
        return hidden_BLL.to(dtype)

    def target_mapping_BPL(self, dtype: torch.dtype) -> Tensor:
        """Return Hugging Face's form of the predicted indices: one-hot rows."""
        return torch.nn.functional.one_hot(self.target_BP, self.tokens_BL.shape[1]).to(dtype)
