"""The n-gram baselines are probability distributions and match a plain count."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain.evaluation import baselines
from pretrain.evaluation.baselines import BigramModel, UnigramModel

VOCAB = 6
STREAMS = st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=2, max_size=40), min_size=1, max_size=4)


@given(STREAMS)
def test_bigram_probabilities_sum_to_one_after_every_token(streams: list[list[int]]) -> None:
    model = BigramModel.count([np.array(stream) for stream in streams], VOCAB)
    for previous in range(VOCAB):
        probability = model.probability(np.full(VOCAB, previous), np.arange(VOCAB))
        assert probability.sum() == pytest.approx(1.0)
        assert (probability > 0).all()


@given(st.lists(st.lists(st.integers(0, VOCAB - 1), max_size=12), max_size=12))
def test_pairs_are_those_of_a_plain_count(streams: list[list[int]]) -> None:
    """Whatever the number of streams; one without a pair has none."""
    model = BigramModel.count((np.array(stream, dtype=np.int64) for stream in streams), VOCAB)
    plain = Counter(
        previous * VOCAB + token
        for stream in streams
        for previous, token in zip(stream, stream[1:], strict=False)
    )
    assert model.pair_keys.tolist() == sorted(plain)
    assert model.pair_counts.tolist() == [plain[key] for key in sorted(plain)]


def test_counting_does_not_go_through_all_pairs_for_every_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 streams, no pair twice: each pair is in a few merges, not in one for each stream behind its own."""
    num_streams, num_pairs, merged = 256, 64, []
    streams = np.arange(num_streams * num_pairs * 2).reshape(num_streams, -1)
    real = baselines.merge_pairs

    def counted(one: baselines.PairTable, other: baselines.PairTable) -> baselines.PairTable:
        merged.append(len(one[0]) + len(other[0]))
        return real(one, other)

    monkeypatch.setattr(baselines, "merge_pairs", counted)
    model = BigramModel.count(streams, vocab_size=streams.size)
    assert len(model.pair_keys) == num_streams * (2 * num_pairs - 1)
    assert sum(merged) <= len(model.pair_keys) * (np.log2(num_streams) + 1)


def test_bigram_follows_the_formula() -> None:
    stream = [0, 1, 0, 1, 0, 2, 3, 3, 1]
    model = BigramModel.count([np.array(stream)], VOCAB)
    pairs = Counter(zip(stream, stream[1:], strict=False))
    once, twice = (sum(count == wanted for count in pairs.values()) + 0.5 for wanted in (1, 2))
    discount = once / (once + 2 * twice)
    continuation = (len([pair for pair in pairs if pair[1] == 1]) + 1) / (len(pairs) + VOCAB)
    after_0 = sum(count for pair, count in pairs.items() if pair[0] == 0)
    kinds_0 = len([pair for pair in pairs if pair[0] == 0])
    expected = (pairs[0, 1] - discount) / after_0 + discount * kinds_0 / after_0 * continuation
    assert model.probability(np.array([0]), np.array([1]))[0] == pytest.approx(expected)


def test_unigram_bits_leave_the_first_token_out() -> None:
    model = UnigramModel.count([np.array([0, 0, 1])], vocab_size=2)
    assert model.bits(np.array([1, 0, 1])) == pytest.approx(-math.log2(3 / 5) - math.log2(2 / 5))
