"""Networks with random weights that replace the pretrained one: Bahdanau et al. 2015, Vaswani et al. 2017.

An encoder reads texts in both directions; a predictor reads them from left to right, segment after segment. If their
size is not configured, it follows the base model: the same width, and about as many parameters in the layers.

Shapes: B lanes, L segment, C context, K = C + L, D embedding or model, R state, V vocabulary.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from finetune.layers.aligned_decoder import initialise as initialise_recurrent
from finetune.layers.recurrent_encoder import BidirectionalEncoder
from finetune.layers.shared_factor import SharedFactor
from finetune.layers.transformer import EncoderBlock, Vocabulary, WideStackConfig, initialise
from finetune.systems.base import Base
from finetune.systems.network import RecurrentNetworkConfig, ScratchNetworkConfig, TransformerNetworkConfig
from pretrain.model.block import Norm
from pretrain.model.config import ModelConfig
from pretrain.model.dropout import Dropout
from pretrain.model.layout import UNFILLED_GROUP, TokenLayout
from pretrain.model.precision import at_least_float32
from pretrain.plan.parameters import count_parameters
from pretrain.randomness import key_seed
from pretrain.weights import ModelDescription


@dataclass(frozen=True)
class NetworkShape:
    """The number of states that `read` returns, and their width, named as in a `TwoStreamTransformer`'s config."""

    num_layers: int
    model_dim: int


class ReplacingNetwork(nn.Module):
    """A network whose layers are named `blocks`, as those of a `TwoStreamTransformer`."""

    def __init__(self, num_layers: int, model_dim: int, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = NetworkShape(num_layers, model_dim), vocab_size

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device


class EncodingNetwork(ReplacingNetwork, ABC):
    """A network that reads whole texts."""

    @abstractmethod
    def read(self, tokens_BL: Tensor, content: TokenLayout) -> list[Tensor]:
        """Return `config.num_layers` states [B, L, `config.model_dim`], from the lowest to the highest.

        Padding is masked; the states at padding are undefined.
        """


@dataclass(frozen=True)
class RecurrentMemory:
    """The memory between segments: the last tokens read [B, C], and the state [B, R] of a recurrent network."""

    tokens_BC: Tensor
    state_BR: Tensor | None = None


class PredictingNetwork(ReplacingNetwork, ABC):
    """A network that predicts every token of a text from those before it; a text begins after an `<eod>`."""

    def __init__(self, num_layers: int, model_dim: int, vocab_size: int, eod_id: int) -> None:
        super().__init__(num_layers, model_dim, vocab_size)
        self._eod_id = eod_id

    def start(self, lanes: int) -> RecurrentMemory:
        """Return the memory before the first segment."""
        return RecurrentMemory(torch.full((lanes, 1), self._eod_id, device=self.device))

    @abstractmethod
    def predictions(self, tokens_BL: Tensor, carried: RecurrentMemory) -> tuple[Tensor, RecurrentMemory]:
        """Return the scores [B, L, V] of the segment's tokens, and the memory for the next segment."""


class RecurrentEncoder(EncodingNetwork):
    """The encoder of Bahdanau et al. (section 3.2); its states are the annotations."""

    def __init__(self, config: RecurrentNetworkConfig, base: ModelDescription) -> None:
        embedding_dim = config.embedding_dim or base.config.model_dim
        gates = 4 if config.cell == "lstm" else 3
        # Two directions, each with weights from rows and from states to its gates.
        state_dim = config.state_dim or _root(2 * gates, 2 * gates * embedding_dim, _in_layers(base))
        super().__init__(1, 2 * state_dim, base.vocab_size)
        self.embedding = nn.Embedding(base.vocab_size, embedding_dim)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            [BidirectionalEncoder(config.cell, embedding_dim, state_dim, 1, config.dropout)]
        )
        initialise_recurrent(self)

    def read(self, tokens_BL: Tensor, content: TokenLayout) -> list[Tensor]:
        """See `EncodingNetwork`."""
        rows_BLD = _embedded(self.embedding, self.dropout, tokens_BL)
        return [self.dropout(self.blocks[0](rows_BLD, _is_read(content)))]


class TransformerEncoder(EncodingNetwork):
    """The encoder of Vaswani et al.; its states are the outputs of every layer."""

    def __init__(self, config: TransformerNetworkConfig, base: ModelDescription) -> None:
        stack = config.stack or _stack_like(base.config)
        super().__init__(stack.num_layers, stack.model_dim, base.vocab_size)
        self.vocabulary = Vocabulary(base.vocab_size, stack.model_dim, stack.dropout, tied=True)
        self.vocabulary.output_bias_V.requires_grad_(False)  # an encoder scores no tokens
        self.blocks, self.final_norm = _blocks(stack)

    def read(self, tokens_BL: Tensor, content: TokenLayout) -> list[Tensor]:
        """See `EncodingNetwork`."""
        rows_BLD, visible_B11L = self.vocabulary.rows(tokens_BL), _is_read(content)[:, None, None]
        states = []
        for block in self.blocks:
            rows_BLD = block(rows_BLD, visible_B11L)
            states.append(rows_BLD)
        return [*states[:-1], self.final_norm(states[-1])]


class GatedUnit(nn.Module):
    """The gated unit of Bahdanau et al. (A.1.1) without a context; its state is float32 at least."""

    def __init__(self, embedding_dim: int, state_dim: int) -> None:
        super().__init__()
        self.state_dim = state_dim
        # Rows for the proposal, the update gate z and the reset gate r, in this order.
        self.from_token = nn.Linear(embedding_dim, 3 * state_dim)
        self.from_state = nn.Linear(state_dim, 2 * state_dim, bias=False)
        self.from_reset_state = nn.Linear(state_dim, state_dim, bias=False)

    def forward(self, rows_BLD: Tensor, state_BR: Tensor) -> Tensor:
        """Return s_i = (1 - z) s_{i-1} + z s~ with s~ = tanh(W y + U (r s_{i-1})), [B, L, R]; y is a row."""
        given_BL3R, dtype, states = self.from_token(rows_BLD), self.from_state.weight.dtype, []
        from_state = SharedFactor(self.from_state.weight.T)
        from_reset_state = SharedFactor(self.from_reset_state.weight.T)
        for given_B3R in given_BL3R.unbind(dim=1):
            narrow_BR = state_BR.to(dtype)
            proposed_BR, gates_B2R = given_B3R.tensor_split([self.state_dim], dim=-1)
            update_BR, reset_BR = torch.sigmoid(gates_B2R + from_state(narrow_BR)).chunk(2, dim=-1)
            proposal_BR = torch.tanh(proposed_BR + from_reset_state(reset_BR * narrow_BR))
            state_BR = torch.lerp(state_BR, proposal_BR.to(state_BR.dtype), update_BR.to(state_BR.dtype))
            states.append(state_BR)
        return torch.stack(states, dim=1)


class RecurrentPredictor(PredictingNetwork):
    """The decoder of Bahdanau et al. without a source: a gated language model with a maxout readout (A.2.2)."""

    def __init__(self, config: RecurrentNetworkConfig, base: ModelDescription, eod_id: int) -> None:
        embedding_dim = config.embedding_dim or base.config.model_dim
        # The unit has 3 R^2 + 3 D R weights, the readout 2 D R + 2 D^2.
        wanted = _in_layers(base) - 2 * embedding_dim**2
        state_dim = config.state_dim or _root(3, 5 * embedding_dim, wanted)
        super().__init__(1, state_dim, base.vocab_size, eod_id)
        self.embedding = nn.Embedding(base.vocab_size, embedding_dim)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList([GatedUnit(embedding_dim, state_dim)])
        self.output_state = nn.Linear(state_dim, 2 * embedding_dim)
        self.output_token = nn.Linear(embedding_dim, 2 * embedding_dim, bias=False)
        tied = base.config.tie_embeddings
        self.output = None if tied else nn.Linear(embedding_dim, base.vocab_size, bias=False)
        self.output_bias_V = nn.Parameter(torch.zeros(base.vocab_size))
        initialise_recurrent(self)

    def start(self, lanes: int) -> RecurrentMemory:
        """Return the memory before the first segment, with a state of zeros."""
        state_BR = at_least_float32(self.embedding.weight.new_zeros(lanes, self.config.model_dim))
        return replace(super().start(lanes), state_BR=state_BR)

    def predictions(self, tokens_BL: Tensor, carried: RecurrentMemory) -> tuple[Tensor, RecurrentMemory]:
        """See `PredictingNetwork`; gradients flow from segment to segment."""
        input_BL = torch.cat([carried.tokens_BC, tokens_BL[:, :-1]], dim=1)
        rows_BLD = _embedded(self.embedding, self.dropout, input_BL)
        states_BLR = self.blocks[0](rows_BLD, carried.state_BR)
        both_BL2D = self.output_state(states_BLR.to(rows_BLD.dtype)) + self.output_token(rows_BLD)
        readout_BLD = self.dropout(both_BL2D.unflatten(-1, (-1, 2)).amax(dim=-1))
        weight_VD = self.embedding.weight if self.output is None else self.output.weight
        logits_BLV = functional.linear(readout_BLD, weight_VD, self.output_bias_V)
        return logits_BLV, RecurrentMemory(tokens_BL[:, -1:], states_BLR[:, -1])


class TransformerPredictor(PredictingNetwork):
    """The decoder of Vaswani et al. without a source.

    Before each segment it reads the preceding tokens again, as many as the base model's memory holds.
    """

    def __init__(self, config: TransformerNetworkConfig, base: ModelDescription, eod_id: int) -> None:
        stack = config.stack or _stack_like(base.config)
        super().__init__(stack.num_layers, stack.model_dim, base.vocab_size, eod_id)
        tied = base.config.tie_embeddings
        self.vocabulary = Vocabulary(base.vocab_size, stack.model_dim, stack.dropout, tied=tied)
        self.blocks, self.final_norm = _blocks(stack)
        self._context_tokens = max(1, base.config.memory_tokens)

    def predictions(self, tokens_BL: Tensor, carried: RecurrentMemory) -> tuple[Tensor, RecurrentMemory]:
        """See `PredictingNetwork`."""
        tokens_BK = torch.cat([carried.tokens_BC, tokens_BL], dim=1)
        rows_BKD = self.vocabulary.rows(tokens_BK[:, :-1])
        visible_KK = rows_BKD.new_ones(rows_BKD.shape[1], rows_BKD.shape[1], dtype=torch.bool).tril()
        for block in self.blocks:
            rows_BKD = block(rows_BKD, visible_KK)
        predicting_BLD = self.final_norm(rows_BKD[:, -tokens_BL.shape[1] :])
        return self.vocabulary.logits(predicting_BLD), RecurrentMemory(tokens_BK[:, -self._context_tokens :])


def encoding_network(config: ScratchNetworkConfig, base: Base, seed: int) -> EncodingNetwork:
    """Build the network on the device of `base`, in training mode."""
    torch.manual_seed(key_seed(seed, "scratch-weights"))
    if isinstance(config, RecurrentNetworkConfig):
        return RecurrentEncoder(config, base.description).to(base.device)
    return TransformerEncoder(config, base.description).to(base.device)


def predicting_network(config: ScratchNetworkConfig, base: Base, seed: int) -> PredictingNetwork:
    """Build the network on the device of `base`, in training mode."""
    torch.manual_seed(key_seed(seed, "scratch-weights"))
    eod_id = base.tokenizer.eod_id
    if isinstance(config, RecurrentNetworkConfig):
        return RecurrentPredictor(config, base.description, eod_id).to(base.device)
    return TransformerPredictor(config, base.description, eod_id).to(base.device)


def _embedded(embedding: nn.Embedding, dropout: Dropout, tokens_BL: Tensor) -> Tensor:
    """Return the embeddings [B, L, D], scaled to size 1 per element."""
    rows_BLD: Tensor = dropout(embedding(tokens_BL) * embedding.embedding_dim**0.5)
    return rows_BLD


def _is_read(content: TokenLayout) -> Tensor:
    """Return which places are read, bool [B, L]: the text, and every lane's first place, so that no lane is empty."""
    is_text_BL = content.group_BX != UNFILLED_GROUP
    return is_text_BL | (content.position_BX == 0)


def _blocks(stack: WideStackConfig) -> tuple[nn.ModuleList, nn.Module]:
    """Build the layers, and the normalisation after them."""
    blocks = nn.ModuleList(EncoderBlock(stack.model_dim, stack) for _ in range(stack.num_layers))
    initialise(blocks)
    return blocks, Norm(stack.model_dim) if stack.norm == "pre" else nn.Identity()


def _stack_like(config: ModelConfig) -> WideStackConfig:
    """Return a stack as deep and wide as the base model, with as many heads or the most that fit the width."""
    most = config.num_heads
    num_heads = next((heads for heads in range(most, 0, -1) if config.model_dim % (2 * heads) == 0), 1)
    return WideStackConfig(
        num_layers=config.num_layers,
        model_dim=config.model_dim,
        num_heads=num_heads,
        ffn_dim=config.ffn_dim,
    )


def _in_layers(base: ModelDescription) -> int:
    """Return the number of parameters of the base model without embedding and output."""
    parts = count_parameters(base.config, base.vocab_size)
    return parts.total - parts.token_embedding - parts.output_bias - parts.untied_output


def _root(square: int, linear: int, wanted: int) -> int:
    """Return the width R that gives `square` R^2 + `linear` R = `wanted` parameters, rounded to a multiple of 8."""
    width = (math.sqrt(linear**2 + 4 * square * max(0, wanted)) - linear) / (2 * square)
    return max(8, 8 * round(width / 8))
