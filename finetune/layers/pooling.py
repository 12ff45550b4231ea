"""Pooling: one vector per text, from the content stream's states at the inputs of all layers.

States are normalised as in `pretrain.inference.embedding`: without training, the mean of the concatenated states of all
layers retrieves best.

Shapes: B lanes, L tokens, D model, E = width of the states used, T places that are pooled (tokens, or statements).
"""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from cluster.config import Config
from finetune.layers.conba import ConbaBlock, ConbaConfig
from pretrain.model.layout import UNFILLED_GROUP
from pretrain.model.precision import at_least_float32


class PoolingConfig(Config):
    """The states that are pooled, and the kind of pooling."""

    kind: Literal["mean", "max", "attention", "last", "mlp", "conba"] = "mean"
    """`attention`: a mean weighted by a learned score of each place. `mlp`: the mean of x + W2 gelu(W1 x + b1) + b2.
    `conba`: the mean of a ConbaLayer's outputs over the sequence of places."""
    layers: Literal["all", "top", "bottom"] = "all"
    """Inputs of all layers concatenated, of the top layer, or of the bottom layer (the embedded tokens). For another
    network than the base model's (`network`): outputs of all its layers, or of the top layer."""
    places: Literal["tokens", "statements"] = "tokens"
    """The elements of the sequence that is pooled: tokens, or the means of statements' tokens."""
    hidden_dim: PositiveInt = 384
    """Rows of W1, for kind `mlp`."""
    conba: ConbaConfig = ConbaConfig()
    """The ConbaLayer, for kind `conba`."""


class Pooling(nn.Module):
    """The head on top of `TwoStreamTransformer.read`."""

    def __init__(self, config: PoolingConfig, num_layers: int, model_dim: int) -> None:
        super().__init__()
        self.config = config
        width = model_dim * (num_layers if config.layers == "all" else 1)
        self.score = nn.Linear(width, 1, bias=False) if config.kind == "attention" else None
        if self.score is not None:
            nn.init.zeros_(self.score.weight)  # starts as the mean
        self.mlp = Perceptron(width, config.hidden_dim) if config.kind == "mlp" else None
        self.conba = ConbaBlock(config.conba, width) if config.kind == "conba" else None
        self.width = self.conba.width if self.conba is not None else width
        """E, the width of the vectors."""

    def forward(self, inputs_BLD: Sequence[Tensor], group_BL: Tensor, statement_BL: Tensor) -> Tensor:
        """Return the vectors [B, E] in float32; zeros for a text without tokens.

        `statement_BL` numbers each token's statement, in order from 0. Padding (UNFILLED_GROUP) has no effect.
        """
        states_BTE, is_text_BT = self._chosen(inputs_BLD), group_BL != UNFILLED_GROUP
        if self.config.places == "statements":
            states_BTE, is_text_BT = statement_means(states_BTE, is_text_BT, statement_BL)
        if self.mlp is not None:
            states_BTE = self.mlp(states_BTE)
        if self.conba is not None:
            states_BTE = self.conba(states_BTE, is_text_BT)
        match self.config.kind:
            case "max":
                return _highest(states_BTE, is_text_BT)
            case "last":
                return _last(states_BTE, is_text_BT)
            case "attention":
                assert self.score is not None
                score_BT = self.score(states_BTE.to(self.score.weight.dtype))[:, :, 0].float()
                return _weighted(states_BTE, is_text_BT, score_BT)
            case _:
                return _weighted(states_BTE, is_text_BT, torch.zeros_like(is_text_BT, dtype=torch.float32))

    def _chosen(self, inputs_BLD: Sequence[Tensor]) -> Tensor:
        match self.config.layers:
            case "all":
                chosen = list(inputs_BLD)
            case "top":
                chosen = [inputs_BLD[-1]]
            case "bottom":
                chosen = [inputs_BLD[0]]
        return torch.cat([functional.layer_norm(one.float(), one.shape[-1:]) for one in chosen], dim=-1)


class Perceptron(nn.Module):
    """The function x + W2 gelu(W1 x + b1) + b2, which starts as x."""

    def __init__(self, width: int, hidden_dim: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, hidden_dim), nn.Linear(hidden_dim, width)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, x_BTE: Tensor) -> Tensor:
        """Return the outputs [B, T, E] in float32, each place computed by itself."""
        added_BTE = self.outer(functional.gelu(self.inner(x_BTE.to(self.inner.weight.dtype))))
        return x_BTE + at_least_float32(added_BTE)


def statement_means(states_BLE: Tensor, is_text_BL: Tensor, statement_BL: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean state of each statement [B, T, E], and which statements have tokens [B, T]."""
    num_statements = int(torch.where(is_text_BL, statement_BL, 0).max()) + 1 if statement_BL.numel() else 1
    index_BL = torch.where(is_text_BL, statement_BL, 0)
    weight_BL = is_text_BL.to(states_BLE.dtype)
    sum_BTE = states_BLE.new_zeros(states_BLE.shape[0], num_statements, states_BLE.shape[2])
    sum_BTE = sum_BTE.scatter_add(
        1, index_BL[:, :, None].expand_as(states_BLE), states_BLE * weight_BL[:, :, None]
    )
    count_BT = weight_BL.new_zeros(sum_BTE.shape[:2]).scatter_add(1, index_BL, weight_BL)
    return sum_BTE / count_BT.clamp(min=1.0)[:, :, None], count_BT > 0


def _weighted(states_BTE: Tensor, is_text_BT: Tensor, score_BT: Tensor) -> Tensor:
    """Return the mean over the text, with weights exp(score)."""
    score_BT = score_BT.masked_fill(~is_text_BT, float("-inf"))
    empty_B1 = ~is_text_BT.any(dim=1, keepdim=True)
    weight_BT = score_BT.masked_fill(empty_B1, 0.0).softmax(dim=1) * is_text_BT
    return (torch.where(is_text_BT[:, :, None], states_BTE, 0.0) * weight_BT[:, :, None]).sum(dim=1)


def _highest(states_BTE: Tensor, is_text_BT: Tensor) -> Tensor:
    highest_BE = states_BTE.masked_fill(~is_text_BT[:, :, None], float("-inf")).amax(dim=1)
    return torch.where(is_text_BT.any(dim=1, keepdim=True), highest_BE, 0.0)


def _last(states_BTE: Tensor, is_text_BT: Tensor) -> Tensor:
    place_T = torch.arange(is_text_BT.shape[1], device=is_text_BT.device)
    last_B = torch.where(is_text_BT, place_T, 0).amax(dim=1)
    lane_B = torch.arange(len(states_BTE), device=states_BTE.device)
    return torch.where(is_text_BT.any(dim=1, keepdim=True), states_BTE[lane_B, last_B], 0.0)
