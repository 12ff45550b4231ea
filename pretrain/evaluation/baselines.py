"""What counted models need for the same text."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from pretrain.data.lanes import LaneReader
from pretrain.evaluation.text import ValidationText
from pretrain.ngram import BigramModel, UnigramModel


@dataclass(frozen=True)
class Baselines:
    """Bits per byte of a smoothed unigram and a smoothed bigram model of the tokens that training read."""

    unigram_bits_per_byte: float
    bigram_bits_per_byte: float

    def to_json(self) -> dict[str, float]:
        """Both by their names."""
        return asdict(self)


def ngram_baselines(
    training: LaneReader,
    num_steps: int,
    text: ValidationText,
    vocab_size: int,
    part_done: Callable[[], None],
) -> Baselines:
    """Counted on what `num_steps` training steps read, at most an epoch of it.

    Reads all lanes of both; `part_done` is called after each.
    """

    def streams() -> Iterator[NDArray[np.int64]]:
        for lane in range(training.lanes):
            yield training.lane_tokens(lane, num_steps)
            part_done()

    unigram, bigram = UnigramModel.count(streams(), vocab_size), BigramModel.count(streams(), vocab_size)
    unigram_bits = bigram_bits = 0.0
    num_bytes = 0
    for lane in range(text.lanes):
        stream = text.stream(lane)
        unigram_bits += unigram.bits(stream)
        bigram_bits += bigram.bits(stream)
        num_bytes += int(text.token_bytes_V[stream[1:]].sum())
        part_done()
    return Baselines(unigram_bits / num_bytes, bigram_bits / num_bytes)
