"""Small models of every kind, and random segments with ties, groups, padding and gaps, in float64."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pretrain.model.config import ModelConfig
from pretrain.model.layout import UNFILLED_GROUP, TokenLayout
from pretrain.model.segment_memory import SegmentMemory
from pretrain.model.transformer import PermutationOutput, TwoStreamTransformer

LANES, LENGTH, VOCAB, MEMORY = 2, 7, 13, 4

CHOICES: dict[str, dict[str, object]] = {
    "xlnet": {},
    "pre-norm": {"norm": "pre"},
    "relu": {"activation": "relu"},
    "swiglu": {"activation": "swiglu"},
    "untied": {"tie_embeddings": False},
    "segment encodings": {"segment_encodings": True},
    "shaw": {"positions": {"kind": "shaw", "max_distance_tokens": 3}},
    "rotary": {"positions": {"kind": "rotary"}},
    "absolute sinusoidal": {"positions": {"kind": "absolute_sinusoidal"}, "memory_tokens": 0},
    "absolute learned": {"positions": {"kind": "absolute_learned", "max_positions": 12}, "memory_tokens": 0},
    "modern": {
        "positions": {"kind": "rotary"},
        "norm": "pre",
        "activation": "swiglu",
        "tie_embeddings": False,
        "segment_encodings": True,
    },
}


def small_model(choice: str = "xlnet", seed: int = 0, **changes: object) -> TwoStreamTransformer:
    """Three layers in float64, every parameter random."""
    torch.manual_seed(seed)
    shape: dict[str, object] = {
        "num_layers": 3,
        "model_dim": 8,
        "num_heads": 2,
        "head_dim": 4,
        "ffn_dim": 12,
        "memory_tokens": MEMORY,
        "dropout": 0.0,
    }
    model = TwoStreamTransformer(
        ModelConfig.model_validate(shape | CHOICES[choice] | changes), VOCAB
    ).double()
    for parameter in model.parameters():  # no zeros or ones that could hide a missing term
        torch.nn.init.normal_(parameter, std=0.5)
    return model


@dataclass(frozen=True)
class Case:
    """A segment: tokens [B, L], their places, the places to predict."""

    tokens_BL: Tensor
    content: TokenLayout
    targets: TokenLayout


def random_case(seed: int, num_targets: int = 4, gap_tokens: int = 0, padding: int = 0) -> Case:
    """Context with ties, two groups, two documents; with a gap before the segment's last third if asked for."""
    generator = torch.Generator().manual_seed(seed)

    def integers(high: int) -> Tensor:
        return torch.randint(0, high, (LANES, LENGTH), generator=generator)

    target_BP = torch.stack([torch.randperm(LENGTH, generator=generator)[:num_targets] for _ in range(LANES)])
    rank_BL = torch.zeros(LANES, LENGTH, dtype=torch.int64)
    rank_BL.scatter_(1, target_BP, torch.arange(1, num_targets + 1).expand(LANES, -1))
    group_BL = integers(2).sort(dim=1).values
    if padding:
        group_BL[:, -padding:] = UNFILLED_GROUP
    position_BL = torch.arange(LENGTH).repeat(LANES, 1)
    position_BL[:, 2 * LENGTH // 3 :] += gap_tokens
    content = TokenLayout(position_BL, rank_BL, group_BL, integers(2).sort(dim=1).values, LENGTH + gap_tokens)
    return Case(integers(VOCAB), content, content.at(target_BP))


def filled_memory(model: TwoStreamTransformer, filled: int, seed: int) -> SegmentMemory:
    """Random memory whose newest `filled` positions belong to group 0, and to documents 0 and 1."""
    generator = torch.Generator().manual_seed(seed)
    empty = model.empty_memory(LANES)
    layers = tuple(
        torch.randn(layer.shape, generator=generator, dtype=torch.float64) for layer in empty.layers_BMD
    )
    group_BM = empty.group_BM.clone()
    group_BM[:, empty.memory_tokens - min(filled, empty.memory_tokens) :] = 0
    document_BM = torch.randint(0, 2, group_BM.shape, generator=generator)
    return SegmentMemory(layers, group_BM, document_BM)


def predict(
    model: TwoStreamTransformer, case: Case, memory: SegmentMemory | None = None
) -> PermutationOutput:
    """The model's answer."""
    output: PermutationOutput = model(case.tokens_BL, case.content, case.targets, memory)
    return output
