"""An encoder of texts: a network, the pretrained one or another, with a pooling head.

Shapes: B lanes, L tokens, E width of a vector.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import model_validator
from torch import Tensor, nn

from data_prep.tokenizer import CodeTokenizer
from finetune.layers.adaptation import add_low_rank, depth_in_network
from finetune.layers.pooling import Pooling, PoolingConfig
from finetune.modalities.base import OnProgress
from finetune.systems.base import Base
from finetune.systems.network import ReplaceableNetworkConfig, check_positions
from finetune.systems.scratch_networks import EncodingNetwork, encoding_network
from pretrain.model.layout import UNFILLED_GROUP, TokenLayout
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.randomness import key_seed


class EncoderConfig(ReplaceableNetworkConfig):
    """The encoding network, its initial weights and what is trained; shared by the systems that read whole texts.

    `adaptation` trains all parameters that a vector depends on ("full"), low-rank changes of them ("lora"), or only the
    pooling and the layers after it ("head").
    """

    pooling: PoolingConfig = PoolingConfig()

    @model_validator(mode="after")
    def _another_network_is_read_to_its_top(self) -> "EncoderConfig":
        if self.network is not None and self.pooling.layers == "bottom":
            raise ValueError(
                f"pooling.layers=bottom is for the base model: network.kind={self.network.kind} has none"
            )
        return self


_ENCODED_AT_ONCE = 32
_STATEMENT_END = re.compile(rb"[\n;{}]")


@dataclass(frozen=True)
class EncoderInput:
    """Texts as tokens, int64 [B, L] each. Group 0 is text, UNFILLED_GROUP padding; statements are numbered from 0."""

    tokens_BL: Tensor
    group_BL: Tensor
    statement_BL: Tensor


class Truncator:
    """Tokenizes texts up to a number of tokens, and counts the texts that were truncated."""

    def __init__(self, tokenizer: CodeTokenizer, device: torch.device) -> None:
        self._tokenizer, self._device = tokenizer, device
        self.cut: dict[str, int] = {}
        """The number of truncated texts by kind, in the last call of `tokens` for that kind."""
        ends = [_STATEMENT_END.search(tokenizer.decode_bytes([i])) for i in range(tokenizer.vocab_size)]
        self._ends_statement_V = np.array([one is not None for one in ends])

    def tokens(
        self, texts: Sequence[str], max_tokens: int, what: str | None, around: str | None = None
    ) -> list[NDArray[np.int64]]:
        """Return the first `max_tokens` tokens of every text, or those on both sides of `around` if it occurs.

        Truncated texts are counted in `cut[what]`, unless `what` is None.
        """
        rows = self._tokenizer.encode_batch(texts)
        if what is not None:
            self.cut[what] = sum(len(row) > max_tokens for row in rows)
        starts = [
            self._start(text, len(row), max_tokens, around) for text, row in zip(texts, rows, strict=True)
        ]
        return [
            row[start : start + max_tokens].astype(np.int64) for start, row in zip(starts, rows, strict=True)
        ]

    def _start(self, text: str, num_tokens: int, max_tokens: int, around: str | None) -> int:
        if around is None or num_tokens <= max_tokens or around not in text:
            return 0
        # Half on each side; tokens may merge across the ends of `around`, which shifts it by one or two.
        place = len(self._tokenizer.encode(text.partition(around)[0]))
        return max(0, min(place - max_tokens // 2, num_tokens - max_tokens))

    def pad(self, rows: Sequence[NDArray[np.int64]]) -> EncoderInput:
        """Return the rows as one batch, padded at the end.

        A statement ends with a token that contains a newline, `;`, `{` or `}`.
        """
        length = max(1, *map(len, rows)) if rows else 1
        tokens_BL = np.zeros((len(rows), length), dtype=np.int64)
        group_BL = np.full_like(tokens_BL, UNFILLED_GROUP)
        for lane, row in enumerate(rows):
            tokens_BL[lane, : len(row)] = row
            group_BL[lane, : len(row)] = 0
        ends_BL = self._ends_statement_V[tokens_BL].astype(np.int64)
        statement_BL = np.cumsum(ends_BL, axis=1) - ends_BL
        return EncoderInput(*(self.on_device(one) for one in (tokens_BL, group_BL, statement_BL)))

    def on_device(self, array: NDArray[np.generic]) -> Tensor:
        """Return the array as a tensor on the network's device."""
        return torch.from_numpy(array).to(self._device)


class TextEncoder(nn.Module):
    """An encoder that reads texts in both directions and returns one vector per text."""

    def __init__(self, network: TwoStreamTransformer | EncodingNetwork, pooling: Pooling) -> None:
        super().__init__()
        self.network, self.pooling = network, pooling

    @classmethod
    def build(cls, config: EncoderConfig, base: Base, seed: int) -> "TextEncoder":
        """Build the encoder on the device of `base`; parameters that are not trained do not require a gradient."""
        network = (
            base.network(config.start, seed, config.positions)
            if config.network is None
            else encoding_network(config.network, base, seed)
        )
        num_layers = network.config.num_layers
        torch.manual_seed(key_seed(seed, "pooling-head"))
        head = Pooling(config.pooling, num_layers, network.config.model_dim).to(base.device)
        if config.adaptation == "lora":
            add_low_rank(network, config.lora_rank, config.lora_alpha)
        for name, parameter in network.named_parameters():
            trained = parameter.requires_grad and config.adaptation != "head"
            is_read = config.network is not None or _is_read(name, num_layers, config.pooling)
            parameter.requires_grad_(trained and is_read)
        return cls(network, head)

    def forward(self, inputs: EncoderInput) -> Tensor:
        """Return the vectors [B, E] in float32."""
        inputs_BLD = self.network.read(inputs.tokens_BL, TokenLayout.bidirectional(inputs.group_BL))
        vector_BE: Tensor = self.pooling(inputs_BLD, inputs.group_BL, inputs.statement_BL)
        return vector_BE

    def both(self, inputs: EncoderInput, separator_id: int) -> tuple[Tensor, Tensor]:
        """Return the vectors [B, E] of two texts that are read together, with the separator between them."""
        inputs_BLD = self.network.read(inputs.tokens_BL, TokenLayout.bidirectional(inputs.group_BL))
        ends_BL = inputs.tokens_BL == separator_id
        is_second_BL = ends_BL.cumsum(dim=1) > 0
        vectors = [
            self.pooling(
                inputs_BLD, inputs.group_BL.masked_fill(other_BL, UNFILLED_GROUP), inputs.statement_BL
            )
            for other_BL in (is_second_BL, ~is_second_BL | ends_BL)
        ]
        return vectors[0], vectors[1]

    def depth(self, name: str) -> int:
        """Return the number of layers between a parameter of this module and the head."""
        inner = name.removeprefix("network.")
        return depth_in_network(self.network.config.num_layers, inner) if inner != name else 0


@torch.inference_mode()
def encoded(
    encoder: TextEncoder, truncator: Truncator, rows: Sequence[NDArray[np.int64]], on_progress: OnProgress
) -> NDArray[np.float64]:
    """Return the vectors [number of rows, E]; similar lengths are batched. Products are bfloat16, sums float32."""
    vectors = np.zeros((len(rows), encoder.pooling.width))
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    device = encoder.network.device
    for first in range(0, len(order), _ENCODED_AT_ONCE):
        part = order[first : first + _ENCODED_AT_ONCE]
        with torch.autocast(device.type, dtype=torch.bfloat16):
            vector_BE = encoder(truncator.pad([rows[number] for number in part]))
        vectors[part] = vector_BE.double().cpu().numpy()
        on_progress(first + len(part))
    return vectors


def check_length(config: EncoderConfig, base: Base, max_tokens: int, what: str) -> None:
    """Raise UserError if the encoder's positions do not reach `max_tokens`; `what` names the setting."""
    if config.network is None:  # the positions of other networks reach any distance
        check_positions(base.shape(config.positions).config.positions, max_tokens, what)


def _is_read(name: str, num_layers: int, pooling: PoolingConfig) -> bool:
    """Return whether a vector depends on this parameter; none depends on the last layer or on the output."""
    if name.startswith("blocks."):
        return pooling.layers != "bottom" and int(name.split(".")[1]) < num_layers - 1
    return name.startswith(("embedding.", "input_positions."))
