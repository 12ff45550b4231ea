"""The network: embedding, layers, output.

Shapes: B lanes, L segment, M memory, K = M + L keys, P predicted, Q = L + P rows, D model, R distances,
V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from pretrain.model.block import Block, Norm
from pretrain.model.config import ModelConfig, Recompute, TransformerXLPositions
from pretrain.model.dropout import Dropout
from pretrain.model.init import QUERY_START_DEVIATION, initialise
from pretrain.model.layout import AttentionMask, DistanceSpan, TokenLayout, causal_ranks, join
from pretrain.model.loss import output_loss
from pretrain.model.positions import input_positions, sinusoid_table
from pretrain.model.precision import at_least_float32, product_dtype
from pretrain.model.segment_memory import SegmentMemory


@dataclass(frozen=True)
class PermutationOutput:
    """Logits of the predicted positions and the memory for the next segment."""

    logits_BPV: Tensor
    memory: SegmentMemory


@dataclass(frozen=True)
class PermutationLoss:
    """The mean loss of the predictions and the memory for the next segment."""

    loss: Tensor
    memory: SegmentMemory


class TwoStreamTransformer(nn.Module):
    """XLNet's two streams (Yang et al. 2019, section 2.3) with segment recurrence (2.4).

    The rows of a layer are the content stream's, one per token, then the query stream's, one per prediction. An
    order is a rank per token: see `TokenLayout` and `AttentionMask`.
    """

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.recompute: Recompute = "none"
        """What training does not keep for the backward pass, but computes again there."""
        self.embedding = nn.Embedding(vocab_size, config.model_dim)
        self.input_positions = input_positions(config)
        self.query_start_D = nn.Parameter(torch.empty(config.model_dim))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.final_norm = (
            Norm(config.model_dim, eps=config.norm_epsilon) if config.norm == "pre" else nn.Identity()
        )
        self.dropout = Dropout(config.dropout)
        self.output_bias_V = nn.Parameter(torch.zeros(vocab_size))
        self.output = None if config.tie_embeddings else nn.Linear(config.model_dim, vocab_size, bias=False)
        nn.init.normal_(self.query_start_D, std=QUERY_START_DEVIATION)
        initialise(self, config.model_dim)

    @property
    def dtype(self) -> torch.dtype:
        """The type in which matrices are multiplied."""
        return self.embedding.weight.dtype

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self.embedding.weight.device

    def context_ranks(self, rank_BL: Tensor) -> Tensor:
        """Return ranks in which the context, whose rank is 0, sees itself as `config.context` says."""
        return causal_ranks(rank_BL) if self.config.context == "causal" else rank_BL

    def empty_memory(self, lanes: int) -> SegmentMemory:
        """Return the memory of `lanes` lanes before their first segment, on the model's device and in its type."""
        config = self.config
        return SegmentMemory.empty(
            config.num_layers, lanes, config.memory_tokens, config.model_dim, self.device, self.dtype
        )

    def forward(
        self,
        tokens_BL: Tensor,
        content: TokenLayout,
        targets: TokenLayout,
        memory: SegmentMemory | None = None,
        wanted_BP: Tensor | None = None,
    ) -> PermutationOutput | PermutationLoss:
        """Predict one token at each of the P `targets`, from the tokens that its rank lets it see.

        tokens: int64 [B, L]. A prediction never sees a token of its own rank, and sees memory of its own group only.
        Returns logits [B, P, V], or with the `wanted` tokens the mean loss of their predictions in nats, and the memory
        for the next segment.
        """
        memory = memory or self.empty_memory(tokens_BL.shape[0])
        length = tokens_BL.shape[1]
        mask = _attention_mask(content, targets, memory)
        rows_BQD = torch.cat([self.content_rows(tokens_BL, content), self.query_rows(targets)], dim=1)
        table_RD = self.distance_table(mask.span)
        narrow_BQD = rows_BQD.to(product_dtype(self.embedding.weight))
        inputs_BLD: list[Tensor] = []
        for number, block in enumerate(self.blocks):
            inputs_BLD.append(rows_BQD[:, :length])
            if number + 1 == len(self.blocks):
                # Neither the loss nor the memory needs the last layer's content stream.
                mask = mask.rows_from(length)
            rows_BQD, narrow_BQD = self._layer(
                block, rows_BQD, narrow_BQD, memory.layers_BMD[number], table_RD, mask
            )
        advanced = memory.advanced(inputs_BLD, content)
        if wanted_BP is None:
            return PermutationOutput(self.logits(rows_BQD), advanced)
        return PermutationLoss(output_loss(*self._output_layer(rows_BQD), wanted_BP), advanced)

    def read(
        self, tokens_BL: Tensor, content: TokenLayout, memory: SegmentMemory | None = None
    ) -> list[Tensor]:
        """Return the content stream [B, L, D] at the input of every layer; without `memory` no token precedes it.

        `TokenLayout.bidirectional` reads in both directions. The last layer's output is left out: pretraining's loss
        does not depend on it.
        """
        memory = memory or self.empty_memory(tokens_BL.shape[0]).without_past()
        nothing = content.at(torch.zeros_like(tokens_BL[:, :0]))
        mask = _attention_mask(content, nothing, memory)
        table_RD = self.distance_table(mask.span)
        rows_BLD = self.content_rows(tokens_BL, content)
        narrow_BLD = rows_BLD.to(product_dtype(self.embedding.weight))
        inputs_BLD = [rows_BLD]
        for number, block in enumerate(list(self.blocks)[:-1]):
            rows_BLD, narrow_BLD = self._layer(
                block, rows_BLD, narrow_BLD, memory.layers_BMD[number], table_RD, mask
            )
            inputs_BLD.append(rows_BLD)
        return inputs_BLD

    def _layer(self, block: nn.Module, *inputs: Tensor | AttentionMask | None) -> tuple[Tensor, Tensor]:
        """Run a block; what is recomputed is not kept for the backward pass."""
        if self.recompute == "layers" and self.training:
            both: tuple[Tensor, Tensor] = checkpoint(block, *inputs, use_reentrant=False)
        else:
            both = block(*inputs, self.recompute == "attention" and self.training)
        return both

    def distance_table(self, span: DistanceSpan) -> Tensor | None:
        """Return the sinusoids [R, D] of the span's distances for Transformer-XL positions; None for others."""
        if not isinstance(self.config.positions, TransformerXLPositions):
            return None
        table_RD = sinusoid_table(span, self.config.model_dim, self.device)
        dropped: Tensor = self.dropout(table_RD.to(self.dtype))
        return dropped

    def content_rows(self, tokens_BL: Tensor, content: TokenLayout) -> Tensor:
        """Return the content stream [B, L, D] below the first layer."""
        return self._with_input_positions(
            functional.embedding(tokens_BL, at_least_float32(self.embedding.weight)), content
        )

    def query_rows(self, targets: TokenLayout) -> Tensor:
        """Return the query stream [B, P, D] below the first layer."""
        return self._with_input_positions(
            at_least_float32(self.query_start_D).expand(*targets.rank_BX.shape, -1), targets
        )

    def _with_input_positions(self, rows_BXD: Tensor, layout: TokenLayout) -> Tensor:
        added_BXD = self.input_positions.vectors(layout.position_BX, layout.extent)
        if added_BXD is not None:
            rows_BXD = rows_BXD + added_BXD.to(rows_BXD.dtype)
        dropped: Tensor = self.dropout(rows_BXD)
        return dropped

    def logits(self, rows_BPD: Tensor) -> Tensor:
        """Return the logits [B, P, V] of the query stream above the last layer."""
        return functional.linear(*self._output_layer(rows_BPD))

    def _output_layer(self, rows_BPD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output layer's input [B, P, D], weights [V, D] and bias [V]."""
        rows_BPD = self.dropout(self.final_norm(rows_BPD))
        weight_VD = self.embedding.weight if self.output is None else self.output.weight
        return rows_BPD.to(weight_VD.dtype), weight_VD, self.output_bias_V


def _attention_mask(content: TokenLayout, targets: TokenLayout, memory: SegmentMemory) -> AttentionMask:
    keys = join(memory.layout(with_documents=content.document_BX is not None), content)
    span = DistanceSpan.of_segment(content.extent, memory.memory_tokens)
    return AttentionMask.of_streams(content, targets, keys, span)
