"""The pretrained network as a system uses it: from which weights, with which positions, how much of it is trained."""

from dataclasses import replace

import torch
from pydantic import PositiveFloat, PositiveInt

from cluster.config import Config
from finetune.layers.adaptation import Adaptation, adapt
from finetune.systems.base import Base, Start
from finetune.systems.extent import check_extent
from pretrain.model.config import PositionsConfig
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.randomness import key_seed


class AdaptedNetworkConfig(Config):
    """Of systems whose predictions are the network's own."""

    start: Start = "pretrained"
    positions: PositionsConfig | None = None
    """With `start: scratch`, other positions than the base model's."""
    adaptation: Adaptation = "full"
    lora_rank: PositiveInt = 16
    lora_alpha: PositiveFloat = 32.0
    """The low-rank change is scaled by lora_alpha / lora_rank."""


def adapted_network(
    config: AdaptedNetworkConfig, base: Base, extent_tokens: int, limits: str, seed: int
) -> TwoStreamTransformer:
    """The network before training.

    UserError where `extent_tokens` do not fit its positions; `limits` names what asks for them. A network from random
    weights will be trained on texts of that length, whatever the base model was trained on.
    """
    shape = base.shape(config.positions)
    if config.start == "scratch":
        shape = replace(shape, segment_tokens=extent_tokens)
    check_extent(shape, extent_tokens, limits)
    network = base.network(config.start, seed, config.positions)
    torch.manual_seed(key_seed(seed, "low-rank weights"))
    adapt(network, config.adaptation, config.lora_rank, config.lora_alpha)
    return network
