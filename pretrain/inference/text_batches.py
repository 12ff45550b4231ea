"""Batches of texts of different lengths, read in segments.

Every text begins at a segment's start in its own lane, so its results do not depend on the others.
Shapes: B lanes, L segment, T text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.model.layout import UNFILLED_GROUP


@dataclass(frozen=True)
class TextSegment:
    """Tokens [first, first + L) of the texts `numbers`, one per lane; the longest is first.

    tokens, group: int64 [B, L]; group 0 is text, UNFILLED_GROUP the padding after it.
    """

    numbers: list[int]
    first: int
    tokens_BL: Tensor
    group_BL: Tensor


def text_batches(
    texts: Sequence[NDArray[np.integer]], max_lanes: int, segment_tokens: int
) -> Iterator[Iterator[TextSegment]]:
    """Yield batches of at most `max_lanes` texts of similar length, each as an iterator over its segments.

    The last lanes end first: lanes [0, B) of a segment continue those of the segment before. Texts without tokens are
    in no segment.
    """
    longest_first = sorted(
        (number for number, tokens_T in enumerate(texts) if len(tokens_T)),
        key=lambda number: -len(texts[number]),
    )
    for start in range(0, len(longest_first), max_lanes):
        yield _segments(texts, longest_first[start : start + max_lanes], segment_tokens)


def _segments(
    texts: Sequence[NDArray[np.integer]], longest_first: list[int], segment_tokens: int
) -> Iterator[TextSegment]:
    for first in range(0, len(texts[longest_first[0]]), segment_tokens):
        numbers = [number for number in longest_first if len(texts[number]) > first]
        parts = [texts[number][first : first + segment_tokens] for number in numbers]
        tokens_BL = torch.zeros(len(parts), len(parts[0]), dtype=torch.int64)
        group_BL = torch.full_like(tokens_BL, UNFILLED_GROUP)
        for lane, part in enumerate(parts):
            tokens_BL[lane, : len(part)] = torch.from_numpy(part.astype(np.int64))
            group_BL[lane, : len(part)] = 0
        yield TextSegment(numbers, first, tokens_BL, group_BL)
