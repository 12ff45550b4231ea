"""The permutation language model: embedding, layers, tied output.

Shapes: B lanes, L segment, M memory, P predicted, D model, R distances, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from pretrain.model.attention import Visibility
from pretrain.model.block import Block
from pretrain.model.config import ModelConfig
from pretrain.model.init import QUERY_START_DEVIATION, initialise
from pretrain.model.memory import SegmentMemory
from pretrain.model.positions import sinusoid_table


@dataclass(frozen=True)
class PermutationOutput:
    """Scores of the predicted positions and the memory for the next segment."""

    logits_BPV: Tensor
    memory: SegmentMemory


class PermutationLM(nn.Module):
    """XLNet's two streams (Yang et al. 2019, section 2.3) with segment recurrence (2.4).

    An order is a rank per position: see `Visibility`. Positions of equal rank see each other in the content
    stream, so a context that is given and not predicted shares one rank.
    """

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.embedding = nn.Embedding(vocab_size, config.model_dim)
        self.query_start_D = nn.Parameter(torch.empty(config.model_dim))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.final_norm = nn.LayerNorm(config.model_dim) if config.norm == "pre" else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        self.output_bias_V = nn.Parameter(torch.zeros(vocab_size))
        nn.init.normal_(self.query_start_D, std=QUERY_START_DEVIATION)
        initialise(self, config.model_dim)

    def empty_memory(self, lanes: int) -> SegmentMemory:
        """Memory of `lanes` lanes before their first segment, on the model's device and in its type."""
        weight = self.embedding.weight
        return SegmentMemory.empty(
            self.config.num_layers,
            lanes,
            self.config.memory_tokens,
            self.config.model_dim,
            weight.device,
            weight.dtype,
        )

    def forward(
        self,
        tokens_BL: Tensor,
        rank_BL: Tensor,
        group_BL: Tensor,
        target_BP: Tensor,
        memory: SegmentMemory | None = None,
    ) -> PermutationOutput:
        """Predict the tokens at positions `target_BP` of the segment, each from what its rank lets it see.

        tokens, rank, group: int64 [B, L]; target: int64 [B, P]. A target never sees its own token; memory is
        attended to where its group is the position's group. Returns logits [B, P, V] and the advanced memory.
        """
        memory = memory or self.empty_memory(tokens_BL.shape[0])
        visibility = Visibility(rank_BL, group_BL, memory.group_BM, target_BP)
        table_RD = self._table(tokens_BL, memory)
        content_BLD = self.dropout(self.embedding(tokens_BL))
        query_BPD = self.dropout(self.query_start_D.expand(*target_BP.shape, -1))
        inputs_BLD: list[Tensor] = []
        for number, block in enumerate(self.blocks, start=1):
            inputs_BLD.append(content_BLD)
            content_BLD, query_BPD = block(
                content_BLD,
                query_BPD,
                memory.layers_BMD[number - 1],
                target_BP,
                table_RD,
                visibility,
                # Neither the loss nor the memory needs the last layer's content stream.
                advance_content=number < len(self.blocks),
            )
        query_BPD = self.dropout(self.final_norm(query_BPD))
        logits_BPV = functional.linear(query_BPD, self.embedding.weight, self.output_bias_V)
        return PermutationOutput(logits_BPV, memory.advanced(inputs_BLD, group_BL))

    def read(self, tokens_BL: Tensor, rank_BL: Tensor, group_BL: Tensor) -> list[Tensor]:
        """The content stream [B, L, D] at the input of every layer, without memory.

        Rank 0 everywhere reads in both directions. These are the states that pretraining shapes; what the last
        layer would make of the content stream feeds no loss.
        """
        memory = self.empty_memory(tokens_BL.shape[0]).without_past()
        visibility = Visibility(rank_BL, group_BL, memory.group_BM, None)
        table_RD = self._table(tokens_BL, memory)
        inputs_BLD = [self.dropout(self.embedding(tokens_BL))]
        for number, block in enumerate(list(self.blocks)[:-1]):
            content_BLD, _ = block(
                inputs_BLD[-1], None, memory.layers_BMD[number], None, table_RD, visibility
            )
            inputs_BLD.append(content_BLD)
        return inputs_BLD

    def _table(self, tokens_BL: Tensor, memory: SegmentMemory) -> Tensor:
        table_RD = sinusoid_table(
            tokens_BL.shape[1], memory.memory_tokens, self.config.model_dim, tokens_BL.device
        )
        return self.dropout(table_RD.to(self.embedding.weight.dtype))  # type: ignore[no-any-return]
