"""LoRA (Hu et al. 2021): a frozen weight W becomes W + (alpha / rank) B A, of which A and B are trained.

Our own, because peft replaces `nn.Linear` by a module whose `weight` is still W, and the network reads weights
without calling their modules: query, key and value as one product, fused feed-forward layers, the decoder's packed
layouts. With peft the adapters would silently do nothing there. A parametrisation of `weight` reaches all of them.

Shapes: O output, I input, R rank.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize


class LowRank(nn.Module):
    """Adds (alpha / rank) B A to a weight [O, I]; nothing at first, because B starts at zero."""

    def __init__(self, weight_OI: Tensor, rank: int, alpha: float) -> None:
        super().__init__()
        num_outputs, num_inputs = weight_OI.shape
        self.scale = alpha / rank
        self.a_RI = nn.Parameter(weight_OI.new_empty(rank, num_inputs))
        self.b_OR = nn.Parameter(weight_OI.new_zeros(num_outputs, rank))
        nn.init.normal_(self.a_RI, std=num_inputs**-0.5)

    def forward(self, weight_OI: Tensor) -> Tensor:
        """The weight with what was learnt."""
        return torch.addmm(weight_OI, self.b_OR, self.a_RI, alpha=self.scale)


def add_low_rank(network: nn.Module, rank: int, alpha: float) -> None:
    """Freeze the network and put a `LowRank` on the weight of every linear layer in it."""
    network.requires_grad_(False)
    for module in list(network.modules()):
        if isinstance(module, nn.Linear):
            parametrize.register_parametrization(module, "weight", LowRank(module.weight, rank, alpha))
