"""The permutation LM, or another network, as a predictor that reads from left to right, in segments with memory.

Shapes: B lanes, L segment, T tokens, X predictions, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import PositiveInt
from torch import Tensor, nn

from data_prep.tokenizer import CodeTokenizer
from finetune.layers.adaptation import depth_in_network
from finetune.lexing import Lexeme
from finetune.modalities.base import ModalityName, OnProgress
from finetune.modalities.predicting import Code, PredictingData
from finetune.modalities.writing import writing_loss
from finetune.systems.base import Base, SystemConfigBase
from finetune.systems.network import ReplaceableNetworkConfig, adapted_network
from finetune.systems.scratch_networks import (
    PredictingNetwork,
    RecurrentMemory,
    predicting_network,
)
from pretrain.inference.finite import check_finite
from pretrain.model.layout import UNFILLED_GROUP
from pretrain.model.segment_memory import SegmentMemory
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.objective import left_to_right

_MAX_LANES = 16
_MAX_SCORES = 1 << 25
"""The most scores of a segment over all lanes, to limit memory: 128 MB of float32."""
_OWN_GROUP = 0
FloatArray = NDArray[np.float64]
Tokens = NDArray[np.int64]


class LeftToRightConfig(ReplaceableNetworkConfig, SystemConfigBase):
    """The settings of a predictor that is the network itself, without added layers."""

    modality: ClassVar[ModalityName] = "predict"
    learns: ClassVar[bool] = True

    kind: Literal["left_to_right"] = "left_to_right"
    window_tokens: PositiveInt = 512
    """Training texts are split into windows of this many tokens."""
    segment_tokens: PositiveInt | None = None
    """Tokens of a segment; the model's memory has the tokens before it. None: as many as in pretraining."""

    def needed_positions(self) -> dict[str, int]:
        """See `SystemConfigBase`."""
        if self.start != "pretrained" or self.segment_tokens is None:
            return {}
        return {"segment_tokens": self.segment_tokens}

    def build(self, base: Base, data: PredictingData, seed: int) -> "LeftToRightPredictor":
        """Build the predictor before training. Raises UserError if a segment does not fit the network's positions."""
        segment_tokens = self.segment_tokens or base.description.segment_tokens
        network = (
            adapted_network(self, base, segment_tokens, f"segment_tokens={segment_tokens}", seed)
            if self.network is None
            else predicting_network(self.network, base, seed)
        )
        return LeftToRightPredictor(
            self, NextTokenNetwork(network, segment_tokens), base.tokenizer, data.train
        )


@dataclass(frozen=True)
class WindowBatch:
    """Windows side by side [B, T], padded at their ends."""

    tokens_BT: Tensor
    group_BT: Tensor


class NextTokenNetwork(nn.Module):
    """The network with its loss."""

    def __init__(self, network: TwoStreamTransformer | PredictingNetwork, segment_tokens: int) -> None:
        super().__init__()
        self.network, self.segment_tokens = network, segment_tokens

    def predictions(self, batch: WindowBatch) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield the scores [B, L, V], true tokens [B, L] and their mask [B, L], False at padding, of every segment."""
        carried: SegmentMemory | RecurrentMemory | None = None
        for first in range(0, batch.tokens_BT.shape[1], self.segment_tokens):
            part = slice(first, first + self.segment_tokens)
            tokens_BL, group_BL = batch.tokens_BT[:, part], batch.group_BT[:, part]
            logits_BLV, carried = self._segment(tokens_BL, group_BL, carried)
            yield logits_BLV, tokens_BL, group_BL != UNFILLED_GROUP

    def _segment(
        self, tokens_BL: Tensor, group_BL: Tensor, carried: Any
    ) -> tuple[Tensor, SegmentMemory | RecurrentMemory | None]:
        """Return the segment's scores, and the memory for the next segment."""
        if isinstance(self.network, PredictingNetwork):
            return self.network.predictions(tokens_BL, carried or self.network.start(len(tokens_BL)))
        has_documents = self.network.config.segment_encodings
        content = left_to_right(group_BL, torch.zeros_like(group_BL) if has_documents else None)
        output = self.network(tokens_BL, content, content, carried)
        return output.logits_BPV, output.memory

    def forward(self, batch: WindowBatch) -> Tensor:
        """Return the mean negative log-likelihood of all tokens in nats."""
        parts = [
            (logits_BLV[is_there_BL], tokens_BL[is_there_BL])
            for logits_BLV, tokens_BL, is_there_BL in self.predictions(batch)
        ]
        logits, wanted = zip(*parts, strict=True)
        return writing_loss(torch.cat(logits), torch.cat(wanted), label_smoothing=0.0)


class NextTokenLearner:
    """A `Learner` over windows of the training texts."""

    def __init__(self, module: NextTokenNetwork, windows: Sequence[Tokens]) -> None:
        self.module, self._windows = module, windows
        self.lengths_tokens = [len(window) for window in windows]

    def batch(self, indices: Sequence[int], draw: int) -> WindowBatch:
        """Return the batch of these windows; nothing is random."""
        return side_by_side([self._windows[index] for index in indices], self.module.network.device)

    def depth(self, name: str) -> int:
        """Return the number of layers from a parameter to the output."""
        return depth_in_network(self.module.network.config.num_layers, name.removeprefix("network."))


class LeftToRightPredictor:
    """A `Predictor` with a `NextTokenNetwork`."""

    def __init__(
        self,
        config: LeftToRightConfig,
        module: NextTokenNetwork,
        tokenizer: CodeTokenizer,
        train: Sequence[Code],
    ) -> None:
        self._tokenizer = tokenizer
        self.learner = NextTokenLearner(
            module,
            [
                tokens_T[first : first + config.window_tokens]
                for tokens_T in self._tokens([one.text for one in train])
                for first in range(0, len(tokens_T), config.window_tokens)
            ],
        )

    @torch.inference_mode()
    def ranks(self, items: Sequence[Code], on_progress: OnProgress) -> list[FloatArray]:
        """Return the ranks of every item's lexemes; texts of similar length are read side by side.

        The module must be in evaluation mode.
        """
        texts = self._tokens([one.text for one in items])
        found: list[FloatArray] = [np.zeros(0)] * len(items)
        order = sorted(range(len(items)), key=lambda number: len(texts[number]))
        module = self.learner.module
        lanes = lanes_at_once(module.segment_tokens, module.network.vocab_size)
        for first in range(0, len(order), lanes):
            part = order[first : first + lanes]
            rank_BT = self._token_ranks([texts[number] for number in part])
            for rank_T, number in zip(rank_BT, part, strict=True):
                end_byte_T = np.cumsum(self._tokenizer.token_bytes[texts[number]])
                found[number] = lexeme_ranks(rank_T, end_byte_T, items[number].lexemes)
            on_progress(first + len(part))
        return found

    def _token_ranks(self, texts: Sequence[Tokens]) -> FloatArray:
        batch = side_by_side(texts, self.learner.module.network.device)
        ranks = []
        for logits_BLV, tokens_BL, is_there_BL in self.learner.module.predictions(batch):
            check_finite(logits_BLV[is_there_BL], "the scores of tokens")
            ranks.append(ranks_among(logits_BLV, tokens_BL).cpu())
        return torch.cat(ranks, dim=1).double().numpy()

    def _tokens(self, texts: Sequence[str]) -> list[Tokens]:
        return [one.astype(np.int64) for one in self._tokenizer.encode_batch(texts)] if texts else []


def lanes_at_once(segment_tokens: int, vocab_size: int) -> int:
    """Return the most lanes whose scores of a segment stay within the memory limit."""
    return max(1, min(_MAX_LANES, _MAX_SCORES // (segment_tokens * vocab_size)))


def lexeme_ranks(rank_T: FloatArray, end_byte_T: Tokens, lexemes: Sequence[Lexeme]) -> FloatArray:
    """Return the worst rank of the tokens that overlap each lexeme.

    A token may contain the white space before a lexeme, or two lexemes at once; it then counts for each.
    """
    first = np.searchsorted(end_byte_T, [one.start_byte for one in lexemes], side="right")
    last = np.searchsorted(end_byte_T, [one.end_byte for one in lexemes], side="left")
    return np.array([rank_T[start : end + 1].max() for start, end in zip(first, last, strict=True)])


def ranks_among(logits_XV: Tensor, token_X: Tensor) -> Tensor:
    """Return ranks [X], X of any shape: 1 for the first choice, else how many tokens score as high or higher."""
    wanted_X1 = logits_XV.gather(-1, token_X[..., None])
    num_as_good_X = (logits_XV >= wanted_X1).sum(dim=-1)
    return num_as_good_X.masked_fill(logits_XV.argmax(dim=-1) == token_X, 1)


def side_by_side(texts: Sequence[Tokens], device: torch.device) -> WindowBatch:
    """Return the texts as one batch, padded to the longest."""
    tokens_BT = torch.zeros(len(texts), max(map(len, texts)), dtype=torch.int64)
    group_BT = torch.full_like(tokens_BT, UNFILLED_GROUP)
    for lane, tokens_T in enumerate(texts):
        tokens_BT[lane, : len(tokens_T)] = torch.from_numpy(tokens_T)
        group_BT[lane, : len(tokens_T)] = _OWN_GROUP
    return WindowBatch(tokens_BT.to(device), group_BT.to(device))
