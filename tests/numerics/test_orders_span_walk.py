"""The walk of spans by whole columns is the plain walk: word by word, span by span, for the same random numbers."""

import itertools
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pretrain.orders.config import ObjectiveConfig
from pretrain.orders.draws import DrawTable
from pretrain.orders.spans import SpanOrders

CPU = torch.device("cpu")
LANES = 3


@dataclass
class PlainDraws:
    """One lane's numbers as Python integers of 64 bits."""

    bits: dict[str, list[int]]

    def below(self, purpose: str, number: int, bound: int) -> int:
        return (self.bits[purpose][number] >> 33) * bound >> 31

    def one_over_n(self, purpose: str, number: int, most: int) -> int:
        """1 to `most`, n with a probability proportional to 1/n."""
        weights = [1 / n for n in range(1, most + 1)]
        share = (self.bits[purpose][number] >> 33) / 2**31
        bounds = [partial / sum(weights) for partial in itertools.accumulate(weights)]
        return 1 + sum(bound <= share for bound in bounds[:-1])


def words_in(begins_L: list[bool]) -> list[list[int]]:
    """The tokens of every word."""
    words: list[list[int]] = []
    for index, begins in enumerate(begins_L):
        if begins:
            words.append([])
        words[-1].append(index)
    return words


def plain_walk(
    config: ObjectiveConfig, begins_L: list[bool], draws: PlainDraws
) -> list[tuple[int, list[int]]]:
    """(number of the stretch, tokens) of every span that has any, from the left."""
    length, num_targets = len(begins_L), config.num_targets(len(begins_L))
    words, most = words_in(begins_L), config.max_span_words
    longest_stretch = -(-most * length // num_targets)
    stretch_starts = -draws.below("walk start", 0, longest_stretch)
    walk_starts, words_drawn, spans = stretch_starts, 0, []
    for stretch in itertools.count():
        if stretch_starts >= len(words):
            return spans
        num_words = draws.one_over_n("span words", stretch, most)
        words_drawn += num_words
        stretch_ends = walk_starts + words_drawn * length // num_targets
        slack = stretch_ends - stretch_starts - num_words
        first = stretch_starts + draws.below("span place", stretch, slack + 1)
        tokens = [
            index
            for word in range(first, first + num_words)
            if 0 <= word < len(words)
            for index in words[word]
        ]
        if tokens:
            spans.append((stretch, tokens))
        stretch_starts = stretch_ends
    raise AssertionError("unreachable")


def plain_targets(config: ObjectiveConfig, begins_L: list[bool], draws: PlainDraws) -> list[int]:
    """The predicted tokens in their order."""
    num_targets = config.num_targets(len(begins_L))
    spans = [
        (draws.bits["span"][stretch] >> 2, tokens) for stretch, tokens in plain_walk(config, begins_L, draws)
    ]
    in_spans = {index for _, tokens in spans for index in tokens}
    singles = [
        (draws.bits["token"][index] >> 2, [index]) for index in range(len(begins_L)) if index not in in_spans
    ]
    left, chosen = num_targets, []
    for key, tokens in sorted(spans) + sorted(singles):
        chosen.append((key, tokens[:left]))
        left -= len(tokens[:left])
    if config.order_in_spans == "left_to_right":
        return [index for _, tokens in sorted(chosen) for index in tokens]
    picked = [index for _, tokens in chosen for index in tokens]
    keys = [bits >> 2 for bits in draws.bits["target"]]
    return [index for _, index in sorted(zip(keys, picked, strict=True))]


@pytest.mark.parametrize("order_in_spans", ["random", "left_to_right"])
@given(
    begins=st.lists(st.booleans(), min_size=1, max_size=70),
    share=st.floats(0.01, 1.0),
    max_span_words=st.integers(1, 8),
    seed=st.integers(0, 10**6),
)
def test_the_walk_by_columns_is_the_plain_walk(
    order_in_spans: str, begins: list[bool], share: float, max_span_words: int, seed: int
) -> None:
    begins_L = [True, *begins[1:]]
    config = ObjectiveConfig.model_validate(
        {"target_share": share, "max_span_words": max_span_words, "order_in_spans": order_in_spans}
    )
    spans = SpanOrders(config, len(begins_L), CPU)
    draws = DrawTable(spans.num_draws, CPU).draws(seed, 0, range(LANES))
    begins_BL = torch.tensor([begins_L] * LANES)
    in_span_BL, orders = spans.spans(begins_BL, draws).in_span_BL, spans.orders(begins_BL, draws)
    for lane in range(LANES):
        bits = {
            purpose: [word % (1 << 64) for word in numbers[lane].tolist()]
            for purpose, numbers in draws.bits.items()
        }
        plain = PlainDraws(bits)
        walked = sorted(index for _, tokens in plain_walk(config, begins_L, plain) for index in tokens)
        assert in_span_BL[lane].nonzero()[:, 0].tolist() == walked
        assert orders.target_BP[lane].tolist() == plain_targets(config, begins_L, plain)
