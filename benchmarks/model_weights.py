"""The same weights in ours and in Hugging Face's XLNet.

Shapes: D model, N heads, H head dim.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from pretrain.model.transformer import TwoStreamTransformer


@dataclass(frozen=True)
class Twin:
    """One parameter by both names. XLNet keeps projections to and from heads as [D, N, H], inputs first."""

    xlnet: str
    ours: str
    kind: Literal["same", "to_heads", "from_heads"] = "same"

    def in_ours(self, value: Tensor) -> Tensor:
        """XLNet's value as ours has it."""
        match self.kind:
            case "to_heads":
                return value.flatten(1).T
            case "from_heads":
                return value.flatten(1)
        return value

    def in_xlnet(self, value: Tensor, shape: torch.Size) -> Tensor:
        """Our value as XLNet has it."""
        return (value.T if self.kind == "to_heads" else value).reshape(shape)


def twins(num_layers: int) -> list[Twin]:
    """All parameters but XLNet's segment encodings, which are not used without token types."""
    found = [
        Twin("transformer.word_embedding.weight", "embedding.weight"),
        Twin("transformer.mask_emb", "query_start_D"),
        Twin("lm_loss.bias", "output_bias_V"),
    ]
    for number in range(num_layers):
        theirs, ours = f"transformer.layer.{number}.", f"blocks.{number}."
        attention, norms = theirs + "rel_attn.", ("weight", "bias")
        found += [
            Twin(attention + "q", ours + "attention.query.weight", "to_heads"),
            Twin(attention + "k", ours + "attention.key.weight", "to_heads"),
            Twin(attention + "v", ours + "attention.value.weight", "to_heads"),
            Twin(attention + "r", ours + "attention.positions.projection.weight", "to_heads"),
            Twin(attention + "o", ours + "attention.output.weight", "from_heads"),
            Twin(attention + "r_w_bias", ours + "attention.positions.content_bias_NH"),
            Twin(attention + "r_r_bias", ours + "attention.positions.position_bias_NH"),
            *(Twin(f"{attention}layer_norm.{part}", f"{ours}attention_norm.{part}") for part in norms),
            *(Twin(f"{theirs}ff.layer_norm.{part}", f"{ours}feed_forward_norm.{part}") for part in norms),
            *(Twin(f"{theirs}ff.layer_1.{part}", f"{ours}feed_forward.up.{part}") for part in norms),
            *(Twin(f"{theirs}ff.layer_2.{part}", f"{ours}feed_forward.down.{part}") for part in norms),
        ]
    return found


def load_xlnet_into_ours(weights: Mapping[str, Tensor], model: TwoStreamTransformer) -> None:
    """Copy XLNet's weights, in the type that the model has."""
    values = {
        twin.ours: twin.in_ours(weights[twin.xlnet]).reshape(model.get_parameter(twin.ours).shape)
        for twin in twins(model.config.num_layers)
    }
    model.load_state_dict(values)


def load_ours_into_xlnet(model: TwoStreamTransformer, xlnet: nn.Module) -> None:
    """Copy our weights; XLNet's segment encodings stay."""
    with torch.no_grad():
        for twin in twins(model.config.num_layers):
            there = xlnet.get_parameter(twin.xlnet)
            there.copy_(twin.in_xlnet(model.get_parameter(twin.ours), there.shape))


def xlnet_layout(
    values: Mapping[str, Tensor | None], weights: Mapping[str, Tensor]
) -> dict[str, Tensor | None]:
    """Our gradients by XLNet's names, in the shapes of `weights`."""
    by_ours = {twin.ours: twin for twin in twins(1 + max(map(_layer_number, values)))}
    return {
        by_ours[name].xlnet: None
        if value is None
        else by_ours[name].in_xlnet(value, weights[by_ours[name].xlnet].shape)
        for name, value in values.items()
    }


def _layer_number(name: str) -> int:
    return int(name.split(".")[1]) if name.startswith("blocks.") else 0
