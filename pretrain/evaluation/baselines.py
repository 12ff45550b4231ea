"""N-gram baselines: the bits per byte of counted unigram and bigram models on the validation text."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from pretrain.data.lanes import LaneReader
from pretrain.evaluation.text import ValidationText

IntArray = NDArray[np.int64]
PairTable = tuple[IntArray, IntArray]
"""Keys `previous * V + token` of pairs, sorted, and how often each was seen."""


@dataclass(frozen=True)
class UnigramModel:
    """Add-one smoothed token frequencies."""

    log2_probability_V: NDArray[np.float64]

    @classmethod
    def count(cls, streams: Iterable[IntArray], vocab_size: int) -> "UnigramModel":
        """Count tokens in streams, one in memory at a time."""
        counts = np.ones(vocab_size)
        for stream in streams:
            counts += np.bincount(stream, minlength=vocab_size)
        return cls(np.log2(counts / counts.sum()))

    def bits(self, stream: IntArray) -> float:
        """Return the total bits of the stream's tokens, without its first."""
        return float(-self.log2_probability_V[stream[1:]].sum())


@dataclass(frozen=True)
class BigramModel:
    """Interpolated Kneser-Ney bigrams (Chen and Goodman 1999, section 2.8, one discount n1 / (n1 + 2 n2),
    with n1 and n2 raised by one half so that it is never 0 or 1).

    `pair_keys` are `previous * V + token` of the seen pairs, sorted, `pair_counts` beside them.
    """

    vocab_size: int
    pair_keys: IntArray
    pair_counts: IntArray
    previous_counts_V: IntArray
    previous_kinds_V: IntArray
    continuation_V: NDArray[np.float64]
    discount: float

    @classmethod
    def count(cls, streams: Iterable[IntArray], vocab_size: int) -> "BigramModel":
        """Count pairs in token streams, one in memory at a time; pairs do not cross from one stream to the next."""
        pair_keys, pair_counts = _pair_counts(streams, vocab_size)
        previous, token = np.divmod(pair_keys, vocab_size)
        once, twice = int((pair_counts == 1).sum()), int((pair_counts == 2).sum())
        # Add-one on the continuation counts: a token that never followed another one still gets probability.
        continuation = np.bincount(token, minlength=vocab_size) + 1.0
        return cls(
            vocab_size=vocab_size,
            pair_keys=pair_keys,
            pair_counts=pair_counts,
            previous_counts_V=np.bincount(previous, weights=pair_counts, minlength=vocab_size).astype(
                np.int64
            ),
            previous_kinds_V=np.bincount(previous, minlength=vocab_size),
            continuation_V=continuation / continuation.sum(),
            discount=(once + 0.5) / (once + 0.5 + 2 * (twice + 0.5)),
        )

    def probability(self, previous: IntArray, token: IntArray) -> NDArray[np.float64]:
        """Return p(token | previous), elementwise."""
        key = previous * self.vocab_size + token
        place = np.minimum(np.searchsorted(self.pair_keys, key), len(self.pair_keys) - 1)
        count = np.where(self.pair_keys[place] == key, self.pair_counts[place], 0)
        total = self.previous_counts_V[previous]
        seen = np.maximum(total, 1)
        kept = np.maximum(count - self.discount, 0.0) / seen
        left_over = np.where(total > 0, self.discount * self.previous_kinds_V[previous] / seen, 1.0)
        return kept + left_over * self.continuation_V[token]

    def bits(self, stream: IntArray) -> float:
        """Return the total bits of the stream's tokens, without its first."""
        return float(-np.log2(self.probability(stream[:-1], stream[1:])).sum())


def _pair_counts(streams: Iterable[IntArray], vocab_size: int) -> PairTable:
    """Return the table of all streams' pairs."""
    tables: list[PairTable] = []
    for stream in streams:
        table = np.unique(stream[:-1] * vocab_size + stream[1:], return_counts=True)
        # Merge only tables of similar size, so that a growing table is not copied for every stream.
        while tables and len(tables[-1][0]) <= len(table[0]):
            table = merge_pairs(tables.pop(), table)
        tables.append(table)
    nothing = np.empty(0, dtype=np.int64)
    return reduce(merge_pairs, reversed(tables), (nothing, nothing))


def merge_pairs(one: PairTable, other: PairTable) -> PairTable:
    """Return the pairs of both tables, with their counts added."""
    keys = np.concatenate([one[0], other[0]])
    in_order = np.argsort(keys, kind="stable")  # stable sort is fast on two sorted halves
    keys, counts = keys[in_order], np.concatenate([one[1], other[1]])[in_order]
    firsts = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[firsts], np.add.reduceat(counts, firsts)


@dataclass(frozen=True)
class Baselines:
    """Bits per byte of a smoothed unigram and a smoothed bigram model of the tokens that training read."""

    unigram_bits_per_byte: float
    bigram_bits_per_byte: float

    def to_json(self) -> dict[str, float]:
        """Return both as JSON values."""
        return asdict(self)


def ngram_baselines(
    training: LaneReader,
    num_steps: int,
    text: ValidationText,
    vocab_size: int,
    part_done: Callable[[], None],
) -> Baselines:
    """Count n-grams in the data of `num_steps` training steps, at most an epoch, and score the text with them.

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
