"""One prediction by one whole pass of the model, which gets the given tokens and nothing else."""

import torch

from pretrain.model.layout import TokenLayout
from pretrain.model.segment_memory import SegmentMemory
from pretrain.model.transformer import TwoStreamTransformer


@torch.no_grad()
def logits_at(
    model: TwoStreamTransformer, shown: list[tuple[int, int, int]], place: int, memory: SegmentMemory
) -> torch.Tensor:
    """Logits [V] at `place`, from the (position, rank, token) that are shown: the model gets nothing else."""
    position, ranks, tokens = (torch.tensor([list(one)]) for one in zip(*shown, strict=True))
    extent = 1 + max(place, int(position.max()))
    content = TokenLayout(position, ranks, torch.zeros_like(ranks), None, extent)
    rank = 1 + ranks.max()
    target = TokenLayout(torch.tensor([[place]]), rank[None, None], torch.tensor([[0]]), None, extent)
    logits: torch.Tensor = model(tokens, content, target, memory).logits_BPV[0, 0]
    return logits
