"""The n-gram baselines are probability distributions and match a plain count."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain.ngram import BigramModel, UnigramModel

VOCAB = 6
STREAMS = st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=2, max_size=40), min_size=1, max_size=4)


@given(STREAMS)
def test_bigram_probabilities_sum_to_one_after_every_token(streams: list[list[int]]) -> None:
    model = BigramModel.count([np.array(stream) for stream in streams], VOCAB)
    for previous in range(VOCAB):
        probability = model.probability(np.full(VOCAB, previous), np.arange(VOCAB))
        assert probability.sum() == pytest.approx(1.0)
        assert (probability > 0).all()


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
