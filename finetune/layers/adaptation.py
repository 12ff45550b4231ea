"""The part of a pretrained network that is trained: everything, low-rank changes (LoRA), or the head.

LoRA (Hu et al. 2021): a frozen weight W becomes W + (alpha / rank) B A, of which A and B are trained. peft is not
used, because it replaces `nn.Linear` by a module whose `weight` is still W, and the network reads weights without
calling their modules: query, key and value as one product, fused feed-forward layers, the decoder's packed layouts. Its
adapters would silently have no effect there. A parametrisation of `weight` has an effect everywhere.

Shapes: O output, I input, R rank.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from pretrain.model.transformer import TwoStreamTransformer


class LowRank(nn.Module):
    """A parametrisation that adds (alpha / rank) B A to a weight [O, I]; at first nothing, because B starts at zero."""

    def __init__(self, weight_OI: Tensor, rank: int, alpha: float) -> None:
        super().__init__()
        num_outputs, num_inputs = weight_OI.shape
        self.scale = alpha / rank
        self.a_RI = nn.Parameter(weight_OI.new_empty(rank, num_inputs))
        self.b_OR = nn.Parameter(weight_OI.new_zeros(num_outputs, rank))
        nn.init.normal_(self.a_RI, std=num_inputs**-0.5)

    def forward(self, weight_OI: Tensor) -> Tensor:
        """Return the weight with the low-rank change."""
        return torch.addmm(weight_OI, self.b_OR, self.a_RI, alpha=self.scale)


def add_low_rank(network: nn.Module, rank: int, alpha: float) -> None:
    """Freeze the network and add a `LowRank` to the weight of every linear layer in it."""
    network.requires_grad_(False)
    for module in list(network.modules()):
        if isinstance(module, nn.Linear):
            parametrize.register_parametrization(module, "weight", LowRank(module.weight, rank, alpha))


Adaptation = Literal["full", "lora", "head"]


def adapt(network: TwoStreamTransformer, adaptation: Adaptation, rank: int, alpha: float) -> None:
    """Freeze the parameters that are not trained.

    "full" trains everything; "lora" low-rank changes of all linear layers; "head" the parameters that score the last
    layer's rows: the last normalisation, the output matrix and its bias. If the output matrix is the embedding, the
    embedding is trained.
    """
    if adaptation == "full":
        return
    if adaptation == "lora":
        add_low_rank(network, rank, alpha)
        return
    network.requires_grad_(False)
    head: list[nn.Module] = [network.final_norm, network.output or network.embedding]
    for module in head:
        module.requires_grad_(True)
    network.output_bias_V.requires_grad_(True)


def depth_in_network(num_layers: int, name: str) -> int:
    """Return the number of layers from a parameter of a network to its output; the embedding is the deepest."""
    if name.startswith("blocks."):
        return num_layers - int(name.split(".")[1])
    if name.startswith(("final_norm", "output", "vocabulary.output")):
        return 0
    return num_layers + 1
