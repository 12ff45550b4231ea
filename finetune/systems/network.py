"""The network of a finetuned system: its initial weights, its positions, and the part of it that is trained.

`NetworkConfig` describes the pretrained network. Systems that can also have another network, with random weights, use
`ReplaceableNetworkConfig`; `finetune.systems.scratch_networks` builds those networks.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from cluster.config import Config
from cluster.errors import UserError
from finetune.layers.adaptation import Adaptation, adapt
from finetune.layers.transformer import WideStackConfig
from finetune.systems.base import Base, Start
from pretrain.model.config import AbsoluteLearnedPositions, PositionsConfig
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.randomness import key_seed


class NetworkConfig(Config):
    """The settings of the pretrained network: its initial weights, its positions, and what is trained."""

    start: Start = "pretrained"
    positions: PositionsConfig | None = None
    """Other positions than the base model's; only with `start: scratch`."""
    adaptation: Adaptation = "full"
    lora_rank: PositiveInt = 16
    lora_alpha: PositiveFloat = 32.0
    """The low-rank change is scaled by lora_alpha / lora_rank."""


class RecurrentNetworkConfig(Config):
    """The bidirectional encoder of Bahdanau et al., or their decoder without a source."""

    kind: Literal["aligned_rnn"] = "aligned_rnn"
    cell: Literal["gru", "lstm"] = "gru"
    """The encoder's unit; a predictor always uses the paper's gated unit."""
    embedding_dim: PositiveInt | None = None
    """None: the base model's width."""
    state_dim: PositiveInt | None = None
    """Width of each direction. None: the width that gives about as many parameters as the base model's layers have."""
    dropout: float = Field(default=0.2, ge=0.0, lt=1.0)
    """Dropout of embeddings, and of the states that are pooled or scored."""


class TransformerNetworkConfig(Config):
    """The encoder of Vaswani et al., or their decoder without a source."""

    kind: Literal["transformer"] = "transformer"
    stack: WideStackConfig | None = None
    """None: the base model's number of layers and width."""


ScratchNetworkConfig = Annotated[
    RecurrentNetworkConfig | TransformerNetworkConfig, Field(discriminator="kind")
]


class ReplaceableNetworkConfig(NetworkConfig):
    """The settings of the pretrained network, or of another one with random weights instead."""

    network: ScratchNetworkConfig | None = None
    """The other network, only with `start: scratch`; None uses the base model's shape."""

    @model_validator(mode="after")
    def _another_network_is_trained_from_scratch(self) -> "ReplaceableNetworkConfig":
        if self.network is not None and (self.start, self.adaptation, self.positions) != (
            "scratch",
            "full",
            None,
        ):
            raise ValueError(
                f"network.kind={self.network.kind} begins with random weights and has its own positions: it needs "
                "start=scratch, adaptation=full and no positions"
            )
        return self


def check_positions(
    positions: PositionsConfig, needed_tokens: int, limits: str, trained_tokens: int | None = None
) -> None:
    """Raise UserError if absolute positions do not reach `needed_tokens`; relative ones reach any distance.

    `limits` names the settings that need them. `trained_tokens` is the length of the segments that the positions were
    trained on, if the system must not exceed it; None if the system trains them itself.
    """
    if not positions.kind.startswith("absolute"):
        return
    reached = [trained_tokens] if trained_tokens is not None else []
    if isinstance(positions, AbsoluteLearnedPositions):
        reached.append(positions.max_positions)
    if reached and needed_tokens > min(reached):
        raise UserError(
            f"{limits} need {needed_tokens} positions, and this model with {positions.kind} positions has "
            f"{min(reached)}: lower them, or use a model with relative positions"
        )


def adapted_network(
    config: NetworkConfig, base: Base, needed_tokens: int, limits: str, seed: int
) -> TwoStreamTransformer:
    """Build the pretrained network before training; `config.adaptation` decides which parameters are trained.

    Raises UserError if `needed_tokens` do not fit its positions; `limits` names the settings that need them. A network
    with random weights is trained on texts of that length, so the base model's segment length does not limit it.
    """
    trained_tokens = base.description.segment_tokens if config.start == "pretrained" else None
    positions = base.shape(config.positions).config.positions
    check_positions(positions, needed_tokens, limits, trained_tokens)
    network = base.network(config.start, seed, config.positions)
    torch.manual_seed(key_seed(seed, "low-rank weights"))
    adapt(network, config.adaptation, config.lora_rank, config.lora_alpha)
    return network
