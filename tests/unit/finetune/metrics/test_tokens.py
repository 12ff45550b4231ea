"""Accuracy and MRR over the tokens of documents."""

import math

import numpy as np
import pytest

from cluster.errors import UserError
from finetune.metrics.intervals import estimate
from finetune.metrics.tokens import token_accuracy, token_mrr


def test_tokens_are_counted_and_documents_resampled() -> None:
    rank_DT = [np.array([1.0, 1.0, 2.0]), np.array([math.inf])]
    assert token_accuracy(rank_DT).value == pytest.approx(50.0)
    assert token_mrr(rank_DT).value == pytest.approx((1 + 1 + 1 / 2 + 0) / 4)
    found = estimate(token_accuracy(rank_DT), seed=0)
    assert found.num_items == 2
    assert (found.low, found.high) == (0.0, pytest.approx(200 / 3)), "one document or the other, as a whole"


def test_nothing_to_judge_is_refused() -> None:
    for nothing in ([], [np.zeros(0)]):
        with pytest.raises(UserError, match="no code token"):
            token_accuracy(nothing)
