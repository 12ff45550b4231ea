"""Spans: whole words, as many as drawn, everywhere, in random order.

The walk itself is compared with a plain one in `tests/numerics/test_orders_span_walk.py`.
"""

import numpy as np
import pytest
import torch

from pretrain.orders.config import ObjectiveConfig
from pretrain.orders.draws import DrawTable
from pretrain.orders.order import Orders
from pretrain.orders.spans import SpanOrders

CPU = torch.device("cpu")
SIGMAS = 5


def made(
    config: ObjectiveConfig, begins_word_BL: torch.Tensor, step: int = 0
) -> tuple[Orders, np.ndarray, np.ndarray]:
    """Orders, and for every token its stretch and whether it is in that stretch's span."""
    lanes, length = begins_word_BL.shape
    spans = SpanOrders(config, length, CPU)
    draws = DrawTable(spans.num_draws, CPU).draws(0, step, range(lanes))
    found = spans.spans(begins_word_BL, draws)
    return spans.orders(begins_word_BL, draws), found.stretch_BL.numpy(), found.in_span_BL.numpy()


def words_of(num_pieces: int, lanes: int, length: int) -> torch.Tensor:
    """Every word has `num_pieces` tokens."""
    return (torch.arange(length) % num_pieces == 0).expand(lanes, length)


def num_words_of_spans(
    begins_word_BL: torch.Tensor, stretch_BL: np.ndarray, in_span_BL: np.ndarray
) -> list[int]:
    """Words of the spans of every stretch but the first and the last of a lane, which the segment may cut.

    Lanes must be long: of few stretches, those that a segment does not cut are shorter than others.
    """
    counts = []
    for begins_L, stretch_L, in_span_L in zip(begins_word_BL.numpy(), stretch_BL, in_span_BL, strict=True):
        for stretch in range(stretch_L[0] + 1, stretch_L[-1]):
            counts.append(int(begins_L[(stretch_L == stretch) & in_span_L].sum()))
    return counts


@pytest.mark.parametrize("share", [1 / 7, 0.5, 1.0])
def test_spans_have_n_words_with_a_probability_proportional_to_one_over_n(share: float) -> None:
    begins_BL = torch.rand(4, 12_000, generator=torch.Generator().manual_seed(0)) < 0.6
    begins_BL[:, 0] = True
    _, stretch_BL, in_span_BL = made(ObjectiveConfig(target_share=share), begins_BL)
    counts = np.bincount(num_words_of_spans(begins_BL, stretch_BL, in_span_BL), minlength=6)
    assert counts[0] == 0
    assert len(counts) == 6, "no span has more than max_span_words words"
    wanted = (1 / np.arange(1, 6)) / (1 / np.arange(1, 6)).sum()
    total = counts.sum()
    assert total > 500
    assert (np.abs(counts[1:] / total - wanted) < SIGMAS * np.sqrt(wanted * (1 - wanted) / total)).all()


def test_spans_are_whole_words_where_the_released_code_counted_pieces() -> None:
    begins_BL = words_of(3, lanes=4, length=12_000)
    _, stretch_BL, in_span_BL = made(ObjectiveConfig(target_share=1 / 7), begins_BL)
    edges = np.diff(np.pad(in_span_BL, ((0, 0), (1, 0))).astype(int), axis=1) != 0
    assert edges.any()
    assert not (edges & ~begins_BL.numpy()).any(), "a span must begin and end between words"
    pieces = [3 * words for words in num_words_of_spans(begins_BL, stretch_BL, in_span_BL)]
    # E[n] = 5 / H(5) = 2.19 words are 6.57 pieces; counted in pieces it would be 2.19.
    assert 6.0 < np.mean(pieces) < 7.2


@pytest.mark.parametrize("share", [1 / 6, 0.5, 0.9])
def test_spans_take_their_share_and_single_tokens_only_the_rest(share: float) -> None:
    begins_BL = words_of(2, lanes=256, length=240)
    orders, _, in_span_BL = made(ObjectiveConfig(target_share=share), begins_BL)
    # The walk is as likely to be anywhere: its share of the tokens is P / L, a little more or less by lane.
    assert in_span_BL.mean() == pytest.approx(share, rel=0.03)
    target_BP = orders.target_BP.numpy()
    from_spans = np.take_along_axis(in_span_BL, target_BP, axis=1).sum(axis=1)
    assert (from_spans == np.minimum(in_span_BL.sum(axis=1), target_BP.shape[1])).all()


def test_every_place_is_predicted_as_often() -> None:
    lanes, length = 4000, 40
    orders, _, _ = made(ObjectiveConfig(target_share=0.25), torch.ones(lanes, length, dtype=torch.bool))
    share_L = (orders.rank_BL > 0).double().mean(dim=0).numpy()
    assert np.abs(share_L - 0.25).max() < SIGMAS * np.sqrt(0.25 * 0.75 / lanes)


def test_the_order_of_targets_is_a_uniform_permutation() -> None:
    lanes = 6000
    orders, _, _ = made(ObjectiveConfig(target_share=1.0), torch.ones(lanes, 3, dtype=torch.bool))
    permutations, counts = np.unique(orders.target_BP.numpy(), axis=0, return_counts=True)
    assert len(permutations) == 6
    assert np.abs(counts / lanes - 1 / 6).max() < SIGMAS * np.sqrt(1 / 6 * 5 / 6 / lanes)


def test_spans_go_left_to_right_when_asked_and_stand_in_random_order() -> None:
    begins_BL = words_of(2, lanes=32, length=200)
    config = ObjectiveConfig(target_share=0.4, order_in_spans="left_to_right")
    orders, stretch_BL, in_span_BL = made(config, begins_BL)
    backwards, of_spans = 0, 0
    for target_P, stretch_L, in_span_L in zip(orders.target_BP.numpy(), stretch_BL, in_span_BL, strict=True):
        numbers_P = np.where(in_span_L, stretch_L, -1 - np.arange(200))[target_P]
        changes = np.flatnonzero(np.diff(numbers_P))
        assert len(changes) + 1 == len(set(numbers_P)), "a span's tokens must follow each other in the order"
        same = np.diff(numbers_P) == 0
        assert (np.diff(target_P)[same] == 1).all(), "inside a span the order is left to right"
        backwards += int((np.diff(target_P)[changes] < 0).sum())
        of_spans += len(changes)
    assert 0.4 < backwards / of_spans < 0.6, "spans and single tokens must not go left to right"
