"""The permutation LM as an encoder that reads in both directions, with a new Transformer decoder.

Shapes: B lanes, S source, T target, X predictions, D model, V vocabulary.
"""

from typing import ClassVar, Literal

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from cluster.errors import UserError
from finetune.layers.adaptation import add_low_rank, depth_in_network
from finetune.layers.masked_decoder import Decoder, Memory
from finetune.layers.transformer import StackConfig, Vocabulary
from finetune.modalities.base import ModalityName
from finetune.modalities.writing import WritingData
from finetune.systems.base import Base, Start, SystemConfigBase
from finetune.systems.network import check_positions
from finetune.systems.writers.config import WriterConfig
from finetune.systems.writers.from_source import MaskedDecoderNetwork, SourceWriter
from pretrain.model.block import Norm
from pretrain.model.layout import UNFILLED_GROUP, TokenLayout
from pretrain.model.segment_memory import SegmentMemory
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.randomness import key_seed


class EncoderDecoderConfig(WriterConfig, SystemConfigBase):
    """The settings of the encoder and of the decoder, which is as wide as the pretrained model."""

    modality: ClassVar[ModalityName] = "write"
    learns: ClassVar[bool] = True

    kind: Literal["encoder_decoder"] = "encoder_decoder"
    start: Start = "pretrained"
    """The initial weights of the encoder."""
    adaptation: Literal["full", "lora", "frozen"] = "full"
    """What is trained of the encoder; the decoder is always trained."""
    lora_rank: PositiveInt = 16
    lora_alpha: PositiveFloat = 32.0
    decoder: StackConfig = StackConfig()

    def build(self, base: Base, data: WritingData, seed: int) -> "SourceWriter":
        """Build the writer before training.

        Raises UserError if the decoder's heads do not divide the model's width, or its positions do not reach
        `source_tokens`.
        """
        description = base.description
        if description.config.model_dim % self.decoder.num_heads:
            raise UserError(
                f"decoder.num_heads={self.decoder.num_heads} does not divide this model's "
                f"{description.config.model_dim} dimensions: use another number"
            )
        check_positions(
            description.config.positions,
            self.source_tokens + 2,
            f"source_tokens={self.source_tokens}",
            description.segment_tokens,
        )
        network = base.network(self.start, seed)
        torch.manual_seed(key_seed(seed, "decoder weights"))
        wanted = EncoderDecoderNetwork(self, network).to(base.device)
        _adapt(self, network)
        return SourceWriter(self, wanted, base.tokenizer, base.device, data)


class EncoderDecoderNetwork(MaskedDecoderNetwork):
    """The pretrained network's content stream as the encoder, and a decoder."""

    def __init__(self, config: EncoderDecoderConfig, network: TwoStreamTransformer) -> None:
        super().__init__()
        model_dim = network.config.model_dim
        self.encoder = network
        self.source_norm = Norm(model_dim)
        self.vocabulary = Vocabulary(network.vocab_size, model_dim, config.decoder.dropout, tied=True)
        self.decoder = Decoder(model_dim, config.decoder)
        self.vocabulary.embedding.weight.data.copy_(network.embedding.weight.data)

    def encode(self, source_BS: Tensor, is_source_BS: Tensor) -> Memory:
        """Return the source's keys and values for every layer of the decoder."""
        encoder, config = self.encoder, self.encoder.config
        group_BS = torch.where(is_source_BS, 0, UNFILLED_GROUP)
        document_BS = torch.zeros_like(group_BS) if config.segment_encodings else None
        content = TokenLayout.contiguous(torch.zeros_like(group_BS), group_BS, document_BS)
        nothing = SegmentMemory.empty(
            config.num_layers, len(source_BS), 0, config.model_dim, encoder.device, encoder.dtype
        )
        inputs_BSD = encoder.read(source_BS, content, nothing)
        # The decoder attends to the mean of the normalised inputs of all layers. The last layer's output
        # of the content stream has no effect on pretraining's loss, so it is not used.
        normalised_BSD = [nn.functional.layer_norm(layer, layer.shape[-1:]) for layer in inputs_BSD]
        mean_BSD = torch.stack(normalised_BSD).mean(dim=0)
        return self.decoder.memory(self.source_norm(mean_BSD), is_source_BS)

    def depth(self, name: str) -> int:
        """Return a parameter's depth: the encoder is below the decoder, whose own embedding is new and has depth 0."""
        above = len(self.decoder.blocks)
        if name.startswith("encoder."):
            return above + depth_in_network(self.encoder.config.num_layers, name.removeprefix("encoder."))
        if name.startswith("decoder.blocks."):
            return above - int(name.split(".")[2])
        return above if name.startswith("source_norm") else 0


def _adapt(config: EncoderDecoderConfig, network: TwoStreamTransformer) -> None:
    """Freeze the parameters that are not trained, and those that only the query stream needs."""
    if config.adaptation == "lora":
        add_low_rank(network, config.lora_rank, config.lora_alpha)
    elif config.adaptation == "frozen":
        network.requires_grad_(False)
    unused: list[nn.Module | None] = [network.blocks[-1], network.final_norm, network.output]
    for module in unused:
        if module is not None:
            module.requires_grad_(False)
    for parameter in (network.query_start_D, network.output_bias_V):
        parameter.requires_grad_(False)
