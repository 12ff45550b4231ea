"""A model here and the same model in Hugging Face's code, and segments that both can read.

Shapes: B lanes, L segment, M memory, P predicted, D model, V vocabulary.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import XLNetConfig, XLNetLMHeadModel, XLNetModel

from pretrain.hf.weights import to_xlnet
from pretrain.hf.xlnet_config import xlnet_config_json
from pretrain.model.config import ModelConfig
from pretrain.model.layout import UNFILLED_GROUP, TokenLayout
from pretrain.model.segment_memory import SegmentMemory
from pretrain.model.transformer import TwoStreamTransformer

VOCAB = 23
NO_LABEL = -100


@dataclass(frozen=True)
class Case:
    """What the two are compared on. `filled` of the `memory` positions hold something before the first segment."""

    lanes: int = 2
    length: int = 9
    predicted: int = 4
    layers: int = 2
    heads: int = 2
    head_dim: int = 4
    ffn: int = 12
    memory: int = 0
    filled: int = 0
    padding: int = 0
    documents: bool = False
    segment_encodings: bool = True
    tie_embeddings: bool = True
    activation: str = "gelu"
    num_segments: int = 1

    def config(self) -> ModelConfig:
        """The model's config, without dropout."""
        return ModelConfig(
            num_layers=self.layers,
            model_dim=self.heads * self.head_dim,
            num_heads=self.heads,
            head_dim=self.head_dim,
            ffn_dim=self.ffn,
            memory_tokens=self.memory,
            segment_encodings=self.segment_encodings,
            dropout=0.0,
            norm_epsilon=1e-12,
            activation=self.activation,
            tie_embeddings=self.tie_embeddings,
        )


@dataclass(frozen=True)
class Segment:
    """Tokens, an order, and which tokens are real; `rank` is odd and unique for targets, even for others."""

    tokens_BL: Tensor
    rank_BL: Tensor
    targets_BP: Tensor
    real_BL: Tensor
    document_BL: Tensor | None

    def sighted_BP(self, filled: int) -> Tensor:
        """Whether a target sees anything: memory, or a real token that comes before it."""
        rank_BP = self.rank_BL.gather(1, self.targets_BP)
        earlier_BPL = (self.rank_BL[:, None, :] < rank_BP[:, :, None]) & self.real_BL[:, None, :]
        return earlier_BPL.any(dim=-1) | (filled > 0)

    def labels_BP(self, filled: int) -> Tensor:
        """The targets' tokens where something is seen."""
        wanted_BP = self.tokens_BL.gather(1, self.targets_BP)
        return torch.where(self.sighted_BP(filled), wanted_BP, NO_LABEL)

    def for_ours(self) -> tuple[Tensor, TokenLayout, TokenLayout]:
        """Arguments of `TwoStreamTransformer.forward`."""
        group_BL = torch.where(self.real_BL, 0, UNFILLED_GROUP)
        content = TokenLayout.contiguous(self.rank_BL, group_BL, self.document_BL)
        return self.tokens_BL, content, content.at(self.targets_BP)

    def for_theirs(self, dtype: torch.dtype) -> dict[str, Tensor | None]:
        """Arguments of `XLNetLMHeadModel.forward`."""
        length = self.tokens_BL.shape[1]
        is_target_BL = functional.one_hot(self.targets_BP, length).sum(dim=1).bool()
        later_BLL = self.rank_BL[:, None, :] > self.rank_BL[:, :, None]
        itself_LL = torch.eye(length, dtype=torch.bool)
        return {
            "input_ids": self.tokens_BL,
            "perm_mask": (later_BLL | (itself_LL & is_target_BL[:, :, None])).to(dtype),
            "target_mapping": functional.one_hot(self.targets_BP, length).to(dtype),
            "attention_mask": None if self.real_BL.all() else self.real_BL.to(dtype),
            "token_type_ids": self.document_BL,
        }


def random_segment(case: Case, seed: int) -> Segment:
    """A different order in every lane; padding on the right of even and on the left of odd lanes."""
    generator = torch.Generator().manual_seed(seed)

    def randint(high: int, *shape: int) -> Tensor:
        return torch.randint(0, high, shape, generator=generator)

    shape = (case.lanes, case.length)
    real_BL = torch.ones(shape, dtype=torch.bool)
    if case.padding:
        real_BL[0::2, -case.padding :] = False
        real_BL[1::2, : case.padding] = False
    targets, rank_BL = [], 2 * randint(case.length + 1, *shape) * randint(2, *shape)
    for lane in range(case.lanes):
        places = real_BL[lane].nonzero().flatten()
        chosen = places[torch.randperm(len(places), generator=generator)[: case.predicted]]
        context = places[~torch.isin(places, chosen)]
        rank_BL[lane, context[:1]] = 0  # so that every target sees something unless all are targets
        rank_BL[lane, chosen] = 2 * torch.randperm(case.length, generator=generator)[: case.predicted] + 1
        targets.append(chosen)
    document_BL = randint(3, *shape) if case.documents else None
    return Segment(randint(VOCAB, *shape), rank_BL, torch.stack(targets), real_BL, document_BL)


def fill_with_noise(model: nn.Module, seed: int) -> None:
    """Random values in every parameter, none of them 0 or 1, of sizes that keep what passes through near 1."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        if "norm" in name:
            noise = 0.3 * noise + float(name.endswith("weight"))
        elif "embedding" in name:
            noise = noise * 3 * parameter.shape[1] ** -0.5
        elif parameter.dim() == 2 and name.endswith("weight"):
            noise = noise * parameter.shape[1] ** -0.5
        parameter.data.copy_(noise)


def twins(case: Case, seed: int, dtype: torch.dtype) -> tuple[TwoStreamTransformer, Any]:
    """The same random weights here and there, ready to evaluate."""
    config = case.config()
    ours = TwoStreamTransformer(config, VOCAB).to(dtype).eval()
    fill_with_noise(ours, seed)
    theirs = XLNetLMHeadModel(XLNetConfig(**xlnet_config_json(config, VOCAB, None))).to(dtype).eval()
    weights = to_xlnet(dict(ours.named_parameters()), config, VOCAB)
    left_over = theirs.load_state_dict(weights, strict=False)
    tied = {"lm_loss.weight"} if case.tie_embeddings else set()
    assert set(left_over.missing_keys) == tied, left_over
    assert not left_over.unexpected_keys, left_over
    theirs.tie_weights()
    return ours, theirs


def random_memory(case: Case, ours: TwoStreamTransformer, seed: int) -> SegmentMemory:
    """The newest `filled` positions are noise of group 0, the older ones unfilled (and noise as well)."""
    generator = torch.Generator().manual_seed(seed + 1)
    empty = ours.empty_memory(case.lanes)
    group_BM = empty.group_BM.clone()
    group_BM[:, case.memory - case.filled :] = 0
    layers = [
        torch.randn(layer.shape, generator=generator, dtype=torch.float64) for layer in empty.layers_BMD
    ]
    return SegmentMemory(tuple(layer.to(ours.dtype) for layer in layers), group_BM, empty.document_BM)


def as_mems(memory: SegmentMemory, filled: int) -> list[Tensor] | None:
    """The filled positions as Hugging Face keeps them, [filled, B, D] for each layer; None for none."""
    if filled == 0:
        return None
    return [layer[:, memory.memory_tokens - filled :].transpose(0, 1) for layer in memory.layers_BMD]


@contextmanager
def exact_sinusoids() -> Iterator[None]:
    """Hugging Face's table of distances computed in float64, then rounded to the model's type.

    Its own is computed in float32, which a float64 model cannot be compared with.
    """

    def encoding(
        self: Any, qlen: int, klen: int, bsz: int | None = None, device: torch.device | None = None
    ) -> Tensor:
        frequency = 1 / 10_000 ** (torch.arange(0, self.d_model, 2, dtype=torch.float64) / self.d_model)
        distance = torch.arange(klen, -qlen, -1, dtype=torch.float64)
        return self.positional_embedding(distance, frequency, bsz).to(self.dtype)

    with patch.object(XLNetModel, "relative_positional_encoding", encoding):
        yield
