"""Writers with a separate decoder: the source is encoded, the target is decoded from left to right.

The decoder reads `<eod> t_1 ... t_m` and writes `t_1 ... t_m <eod>`; the encoder reads the source and an `<eod>`, or
prefix, `<hole>`, suffix and an `<eod>`.

Shapes: B lanes, S source, T target, X predictions of all lanes, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from data_prep.tokenizer import CodeTokenizer
from finetune.decoding.decode import choose_tokens, ended_by, occurrences, write_in_batches
from finetune.layers.masked_decoder import DecodedText, Decoder, Memory
from finetune.layers.transformer import Vocabulary
from finetune.modalities.base import OnProgress
from finetune.modalities.writing import WritingData, writing_loss
from finetune.systems.writers.config import WriterConfig
from finetune.systems.writers.sequences import Sequences, Source, Target, Tokens
from pretrain.inference.generation import IncrementalDecoder


@dataclass(frozen=True)
class SourceBatch:
    """Examples side by side, padded at their ends."""

    source_BS: Tensor
    is_source_BS: Tensor
    input_BT: Tensor
    is_wanted_BT: Tensor
    wanted_X: Tensor


class SourceNetwork(nn.Module, ABC):
    """A network that reads a source and writes a target; each subclass has its own type of encoded source."""

    label_smoothing: float = 0.0

    @abstractmethod
    def encode(self, source_BS: Tensor, is_source_BS: Tensor) -> Any:
        """Return the encoded source; it has a method `repeated(times)` that repeats its lanes."""

    @abstractmethod
    def decode(self, encoded: Any, input_BT: Tensor) -> Tensor:
        """Return the rows [B, T, D] after every token of the input, each computed from the tokens up to it."""

    @abstractmethod
    def logits(self, rows_XD: Tensor) -> Tensor:
        """Return the scores [X, V]."""

    @abstractmethod
    def written(self, encoded: Any, start_id: int, max_tokens: int) -> IncrementalDecoder:
        """Return a decoder that writes a text in every lane of `encoded`."""

    @abstractmethod
    def depth(self, name: str) -> int:
        """Return the number of layers from a parameter to the output."""

    def predictions(self, batch: SourceBatch) -> Tensor:
        """Return the scores [X, V] of all wanted tokens, lane after lane."""
        encoded = self.encode(batch.source_BS, batch.is_source_BS)
        return self.logits(self.decode(encoded, batch.input_BT)[batch.is_wanted_BT])

    def forward(self, batch: SourceBatch) -> Tensor:
        """Return the mean loss over all wanted tokens."""
        return writing_loss(self.predictions(batch), batch.wanted_X, self.label_smoothing)


class SourceLearner:
    """A `Learner` of a `SourceNetwork`."""

    def __init__(
        self,
        module: SourceNetwork,
        tokenizer: CodeTokenizer,
        sources: Sequence[Source],
        targets: Sequence[Target],
        device: torch.device,
    ) -> None:
        self.module = module
        self._sources = [_read(source, tokenizer) for source in sources]
        self._targets = [target.ended(tokenizer.eod_id) for target in targets]
        self._start_id, self._device = tokenizer.eod_id, device
        self.lengths_tokens = [
            len(source_S) + len(target_T)
            for source_S, target_T in zip(self._sources, self._targets, strict=True)
        ]

    def batch(self, indices: Sequence[int], draw: int) -> SourceBatch:
        """Return the batch of these examples; nothing is random."""
        source_BS, is_source_BS = filled_up([self._sources[index] for index in indices], self._device)
        targets = [self._targets[index] for index in indices]
        wanted_BT, is_wanted_BT = filled_up(targets, self._device)
        input_BT = torch.cat([torch.full_like(wanted_BT[:, :1], self._start_id), wanted_BT[:, :-1]], dim=1)
        return SourceBatch(source_BS, is_source_BS, input_BT, is_wanted_BT, wanted_BT[is_wanted_BT])

    def depth(self, name: str) -> int:
        """Return the number of layers from a parameter to the output."""
        return self.module.depth(name)


class SourceWriter:
    """A `Writer` with a `SourceNetwork`."""

    def __init__(
        self,
        config: WriterConfig,
        network: SourceNetwork,
        tokenizer: CodeTokenizer,
        device: torch.device,
        data: WritingData,
    ) -> None:
        network.label_smoothing = config.label_smoothing
        self._config, self._tokenizer, self._device = config, tokenizer, device
        self._sequences = Sequences(tokenizer, config)
        sources, targets = self._sequences.training(data.train)
        self.learner = SourceLearner(network, tokenizer, sources, targets, device)

    @property
    def cut(self) -> dict[str, int]:
        """See `Sequences.cut`."""
        return self._sequences.cut

    @property
    def network(self) -> SourceNetwork:
        """The network that is trained."""
        return self.learner.module

    def write(self, sources: Sequence[tuple[str, str | None]], on_progress: OnProgress) -> list[str]:
        """Write one text per source; the module must be in evaluation mode."""
        rows = self.read(sources)

        samples = occurrences(sources)

        def write(numbers: Sequence[int]) -> list[str]:
            return self._written(
                [rows[number] for number in numbers], [samples[number] for number in numbers]
            )

        return write_in_batches(list(map(len, rows)), self._config.decoding.batch, write, on_progress)

    def read(self, sources: Sequence[tuple[str, str | None]]) -> list[Tokens]:
        """Return the tokens that the encoder reads for every source."""
        return [_read(source, self._tokenizer) for source in self._sequences.written(sources)]

    @torch.inference_mode()
    def _written(self, rows: Sequence[Tokens], samples: Sequence[int]) -> list[str]:
        decoding, limit = self._config.decoding, self._config.max_new_tokens
        encoded = self.network.encode(*filled_up(rows, self._device)).repeated(decoding.beam)
        text = self.network.written(encoded, self._tokenizer.eod_id, limit)
        rules = ended_by("<eod>", decoding)
        found = choose_tokens(text, rows, samples, decoding, limit, rules, self._device)
        return self._sequences.texts(found)


def _read(source: Source, tokenizer: CodeTokenizer) -> Tokens:
    """Return the tokens that the encoder reads for a source."""
    return np.append(source.joined(tokenizer.special_id("<hole>")), tokenizer.eod_id)


def filled_up(rows: Sequence[Tokens], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the rows padded with zeros, int64 [B, X], and the mask of their tokens, bool [B, X]."""
    length = max(map(len, rows))
    filled_BX = np.zeros((len(rows), length), dtype=np.int64)
    is_there_BX = np.arange(length) < np.array([[len(row)] for row in rows])
    filled_BX[is_there_BX] = np.concatenate(rows)
    return torch.from_numpy(filled_BX).to(device), torch.from_numpy(is_there_BX).to(device)


class MaskedDecoderNetwork(SourceNetwork):
    """A network that writes with `decoder` and `vocabulary`, which subclasses set."""

    decoder: Decoder
    vocabulary: Vocabulary

    def decode(self, encoded: Memory, input_BT: Tensor) -> Tensor:
        """Return the rows [B, T, D] to be scored."""
        return self.decoder(self.vocabulary.rows(input_BT), encoded)  # type: ignore[no-any-return]

    def logits(self, rows_XD: Tensor) -> Tensor:
        """Return the scores [X, V]."""
        return self.vocabulary.logits(rows_XD)

    def written(self, encoded: Memory, start_id: int, max_tokens: int) -> DecodedText:
        """Return a decoder with a key-value cache."""
        return DecodedText(self.vocabulary, self.decoder, encoded, start_id, max_tokens)
