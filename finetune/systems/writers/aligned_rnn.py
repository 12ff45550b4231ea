"""The aligned recurrent translator of Bahdanau et al. 2015, with random initial weights.

Shapes: B lanes, S source, T target, X predictions, D embedding, L readout, V vocabulary.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from finetune.layers.aligned_decoder import AlignedDecoder, Annotations, initialise
from finetune.layers.recurrent_encoder import BidirectionalEncoder
from finetune.modalities.base import ModalityName
from finetune.modalities.writing import WritingData
from finetune.systems.base import Base, SystemConfigBase
from finetune.systems.writers.alignment import Alignment
from finetune.systems.writers.config import WriterConfig
from finetune.systems.writers.from_source import SourceNetwork, SourceWriter, filled_up
from pretrain.model.dropout import Dropout
from pretrain.randomness import key_seed


class AlignedRnnConfig(WriterConfig, SystemConfigBase):
    """The settings of the bidirectional encoder, the additive attention, the gated decoder and its maxout readout."""

    modality: ClassVar[ModalityName] = "write"
    learns: ClassVar[bool] = True

    kind: Literal["aligned_rnn"] = "aligned_rnn"
    cell: Literal["gru", "lstm"] = "gru"
    """The encoder's unit: the gated unit of the paper, which the decoder always uses, or an LSTM."""
    embedding_dim: PositiveInt = 256
    state_dim: PositiveInt = 384
    """Width of each direction of the encoder, and of the decoder."""
    encoder_layers: PositiveInt = 1
    alignment_dim: PositiveInt = 256
    readout_dim: PositiveInt = 256
    """Width after maxout; if it equals `embedding_dim`, `tie_embeddings` uses the embedding as the output's weights."""
    tie_embeddings: bool = True
    dropout: float = Field(default=0.2, ge=0.0, lt=1.0)
    """Dropout of embeddings, annotations and readout."""

    def build(self, base: Base, data: WritingData, seed: int) -> "AlignedRnnWriter":
        """Build the writer before training; of the base model only the tokenizer is used."""
        torch.manual_seed(key_seed(seed, "aligned rnn weights"))
        network = AlignedRnnNetwork(self, base.description.vocab_size).to(base.device)
        return AlignedRnnWriter(self, network, base.tokenizer, base.device, data)


class AlignedRnnNetwork(SourceNetwork):
    """The encoder and the decoder, with a shared embedding."""

    def __init__(self, config: AlignedRnnConfig, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, config.embedding_dim)
        self.dropout = Dropout(config.dropout)
        self.encoder = BidirectionalEncoder(
            config.cell, config.embedding_dim, config.state_dim, config.encoder_layers, config.dropout
        )
        self.decoder = AlignedDecoder(
            config.embedding_dim,
            config.state_dim,
            config.alignment_dim,
            config.readout_dim,
            config.dropout,
        )
        tied = config.tie_embeddings and config.readout_dim == config.embedding_dim
        self.output = None if tied else nn.Linear(config.readout_dim, vocab_size, bias=False)
        self.output_bias_V = nn.Parameter(torch.zeros(vocab_size))
        initialise(self)

    def rows(self, tokens_BX: Tensor) -> Tensor:
        """Return the embeddings [B, X, D], scaled to size 1 per element."""
        scale = self.embedding.embedding_dim**0.5
        dropped: Tensor = self.dropout(self.embedding(tokens_BX) * scale)
        return dropped

    def encode(self, source_BS: Tensor, is_source_BS: Tensor) -> Annotations:
        """Return the annotations of the source."""
        annotation_BSC = self.dropout(self.encoder(self.rows(source_BS), is_source_BS))
        return self.decoder.annotations(annotation_BSC, is_source_BS)

    def decode(self, encoded: Annotations, input_BT: Tensor) -> Tensor:
        """Return the rows [B, T, L] to be scored."""
        return self.decoder(self.rows(input_BT), encoded)  # type: ignore[no-any-return]

    def logits(self, rows_XD: Tensor) -> Tensor:
        """Return the scores [X, V]."""
        weight_VD = self.embedding.weight if self.output is None else self.output.weight
        return functional.linear(rows_XD, weight_VD, self.output_bias_V)

    def written(self, encoded: Annotations, start_id: int, max_tokens: int) -> "AlignedText":
        """Return a decoder that keeps its recurrent state."""
        return AlignedText(self, encoded, start_id)

    def depth(self, name: str) -> int:
        """Return 0 for the output, 1 for the decoder, 2 for the encoder, 3 for the embedding."""
        parts = ("output", "decoder.", "encoder.", "embedding")
        return next(depth for depth, part in enumerate(parts) if name.startswith(part))


class AlignedText:
    """An `IncrementalDecoder` with the recurrent decoder; `weights` are the alignments so far."""

    def __init__(self, network: AlignedRnnNetwork, encoded: Annotations, start_id: int) -> None:
        self._network, self._source = network, encoded
        lanes = len(encoded.is_source_BS)
        self._start_B = torch.full((lanes,), start_id, device=encoded.is_source_BS.device)
        self.weights: list[Tensor] = []
        """The alignments [B, S] of every scored token; their lanes are not reordered."""

    def first(self) -> Tensor:
        """Return the scores [B, V] of the first token."""
        return self.following(self._start_B)

    @torch.inference_mode()
    def following(self, token_B: Tensor) -> Tensor:
        """Return the scores [B, V] of the token after `token_B`."""
        decoder = self._network.decoder
        rows_BD = self._network.rows(token_B[:, None])[:, 0]
        state_BR, context_BC, weight_BS = decoder.step(
            self._source.state_BR,
            decoder.from_token(rows_BD),
            self._source,
            decoder.products(self._source),
        )
        self._source = self._source.with_state(state_BR)
        self.weights.append(weight_BS)
        return self._network.logits(decoder.readout(state_BR, rows_BD, context_BC))

    @torch.inference_mode()
    def reorder(self, lane_B: Tensor) -> None:
        """Let lane i continue from lane `lane_B[i]`, which has the same source."""
        self._source = self._source.with_state(self._source.state_BR[lane_B])

    @torch.inference_mode()
    def retain(self, lane_X: Tensor) -> None:
        """Keep only these lanes."""
        self._source = self._source.of_lanes(lane_X)


class AlignedRnnWriter(SourceWriter):
    """A `Writer` that also returns the alignment of written tokens with source tokens."""

    @torch.inference_mode()
    def alignment(self, source: str, target: str | None = None) -> Alignment:
        """Return the weights alpha_ij of the text written for the source, or of `target` if it is given."""
        network = self.network
        assert isinstance(network, AlignedRnnNetwork)
        text = target if target is not None else self.write([(source, None)], lambda done: None)[0]
        row_S = self.read([(source, None)])[0]
        target_T = [*self._tokenizer.encode(text).tolist(), self._tokenizer.eod_id]
        encoded = network.encode(*filled_up([row_S], self._device))
        written = network.written(encoded, self._tokenizer.eod_id, len(target_T))
        written.first()
        for token in target_T[:-1]:
            written.following(torch.tensor([token], device=self._device))
        weight_TS = torch.cat(written.weights).float().cpu().numpy()
        return Alignment(self._names(row_S.tolist()), self._names(target_T), weight_TS)

    def _names(self, tokens: Sequence[int]) -> tuple[str, ...]:
        return tuple(self._tokenizer.decode([token]) or "<end>" for token in tokens)
