"""How much of a pretrained network is trained."""

from typing import Literal

from torch import nn

from finetune.layers.low_rank import add_low_rank
from pretrain.model.transformer import TwoStreamTransformer

Adaptation = Literal["full", "lora", "head"]


def adapt(network: TwoStreamTransformer, adaptation: Adaptation, rank: int, alpha: float) -> None:
    """Freeze what is not trained.

    "full" trains everything; "lora" low-rank changes of all linear layers; "head" what makes scores of the last
    layer's rows: the last normalisation, the output matrix and its bias. Where the output matrix is the embedding,
    the embedding is trained.
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
    """How many layers a parameter of a network lies below its output; the embedding lies deepest."""
    if name.startswith("blocks."):
        return num_layers - int(name.split(".")[1])
    if name.startswith(("final_norm", "output", "vocabulary.output")):
        return 0
    return num_layers + 1
