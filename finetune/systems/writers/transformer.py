"""The Transformer encoder-decoder with random initial weights (Vaswani et al. 2017).

Shapes: B lanes, S source, T target, X predictions, D model, V vocabulary.
"""

from typing import ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor

from finetune.layers.masked_decoder import Decoder, Memory
from finetune.layers.transformer import Encoder, Vocabulary, WideStackConfig
from finetune.modalities.base import ModalityName
from finetune.modalities.writing import WritingData
from finetune.systems.base import Base, SystemConfigBase
from finetune.systems.writers.config import WriterConfig
from finetune.systems.writers.from_source import MaskedDecoderNetwork, SourceWriter
from pretrain.randomness import key_seed


class TransformerWriterConfig(WriterConfig, SystemConfigBase):
    """The settings of the Transformer with sinusoidal positions and a masked decoder."""

    modality: ClassVar[ModalityName] = "write"
    learns: ClassVar[bool] = True

    kind: Literal["transformer"] = "transformer"
    encoder: WideStackConfig = WideStackConfig()
    decoder_layers: PositiveInt | None = None
    """None: as many as the encoder has."""
    tie_embeddings: bool = True
    """Whether the output's weights are the embedding; source and target always share the embedding."""

    def build(self, base: Base, data: WritingData, seed: int) -> "SourceWriter":
        """Build the writer before training; of the base model only the tokenizer is used."""
        torch.manual_seed(key_seed(seed, "transformer weights"))
        network = TransformerNetwork(self, base.description.vocab_size).to(base.device)
        return SourceWriter(self, network, base.tokenizer, base.device, data)


class TransformerNetwork(MaskedDecoderNetwork):
    """The encoder and the decoder, with a shared vocabulary."""

    def __init__(self, config: TransformerWriterConfig, vocab_size: int) -> None:
        super().__init__()
        stack = config.encoder
        model_dim = stack.model_dim
        decoder = stack.model_copy(update={"num_layers": config.decoder_layers or stack.num_layers})
        self.vocabulary = Vocabulary(vocab_size, model_dim, stack.dropout, tied=config.tie_embeddings)
        self.encoder, self.decoder = Encoder(model_dim, stack), Decoder(model_dim, decoder)

    def encode(self, source_BS: Tensor, is_source_BS: Tensor) -> Memory:
        """Return the source's keys and values for every layer of the decoder."""
        return self.decoder.memory(self.encoder(self.vocabulary.rows(source_BS), is_source_BS), is_source_BS)

    def depth(self, name: str) -> int:
        """Return a parameter's depth: the encoder is below the decoder, the embedding below the encoder."""
        above, below = len(self.decoder.blocks), len(self.encoder.blocks)
        if name.startswith("decoder.blocks."):
            return above - int(name.split(".")[2])
        if name.startswith("encoder.blocks."):
            return above + below - int(name.split(".")[2])
        if name.startswith("encoder."):
            return above
        return above + below + 1 if name.startswith("vocabulary.embedding") else 0
