"""Decoding with the cache and without one: two ways to the same logits."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.inference.completion import Continuation
from pretrain.inference.decoder import Decoder
from pretrain.model.layout import TokenLayout
from pretrain.model.segment_memory import SegmentMemory
from pretrain.model.transformer import TwoStreamTransformer
from tests.small_models import VOCAB

FP64_TOLERANCE = 1e-10
SEGMENT = 12
EOD = 1


def random_tokens(seed: int, count: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, VOCAB, count)


def row(values: list[int] | NDArray[np.int64]) -> Tensor:
    return torch.tensor(np.asarray(values, dtype=np.int64))[None]


def behind_eod(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[EOD], tokens])


@torch.inference_mode()
def without_cache(
    model: TwoStreamTransformer,
    tokens: NDArray[np.int64],
    rank: list[int],
    position: list[int],
    predicted: list[tuple[int, int]],
    memory: SegmentMemory | None = None,
    document: list[int] | None = None,
) -> tuple[Tensor, SegmentMemory]:
    """Logits [P, V] for (position, rank) pairs from the whole text at once; everything is of one group.

    `document` is of every token; those predicted are of document 1.
    """
    extent = max(position + [place for place, _ in predicted]) + 1
    documents = None if document is None else row(document)
    content = TokenLayout(row(position), row(rank), torch.zeros_like(row(rank)), documents, extent)
    places, ranks = row([place for place, _ in predicted]), row([one for _, one in predicted])
    of_text = None if document is None else torch.ones_like(ranks)
    targets = TokenLayout(places, ranks, torch.zeros_like(ranks), of_text, extent)
    output = model(row(tokens), content, targets, memory)
    return output.logits_BPV[0], output.memory


def continued(
    model: TwoStreamTransformer,
    prompts: list[NDArray[np.int64]],
    new: list[NDArray[np.int64]],
    segment_tokens: int = SEGMENT,
) -> Tensor:
    """Logits [B, T, V] of every new token with the cache."""
    text = Continuation(Decoder(model, segment_tokens), prompts, max_new_tokens=len(new[0]))
    new_BT = torch.tensor(np.stack(new))
    logits = [text.first()]
    logits += [text.following(new_BT[:, step]) for step in range(new_BT.shape[1] - 1)]
    return torch.stack(logits, dim=1)


Part = tuple[int, int, int]
"""First and end of a segment in the text, and how many of its tokens are context."""


def in_segments(
    model: TwoStreamTransformer, text: NDArray[np.int64], parts: list[Part], eod_first: bool = False
) -> Tensor:
    """Logits of all tokens behind the contexts; what two segments share is the context of the second.

    With `eod_first` the first token is of another document than the others.
    """
    document = [0] + [1] * (len(text) - 1) if eod_first else None
    memory, wanted = None, []
    for number, (first, end, num_context) in enumerate(parts):
        length = end - first
        rank = [0] * num_context + list(range(1, length - num_context + 1))
        predicted = [(place, place - num_context + 1) for place in range(num_context, length)]
        of_part = document and document[first:end]
        places = list(range(length))
        logits, _ = without_cache(
            model, text[first:end], rank, places, predicted or [(0, 0)], memory, of_part
        )
        wanted.append(logits[: len(predicted)])
        if number + 1 < len(parts):
            kept = parts[number + 1][0] - first
            _, memory = without_cache(
                model,
                text[first : first + kept],
                rank[:kept],
                places[:kept],
                [(0, 0)],
                memory,
                of_part and of_part[:kept],
            )
    return torch.cat(wanted)
