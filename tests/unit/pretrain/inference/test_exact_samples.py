"""Samples that are written several tokens a pass follow the model's distribution: 100,000 of each, chi-squared.

The expected numbers are from whole passes of the model over every text that is possible.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

import numpy as np
import pytest
import torch
from torch import Tensor

from pretrain.inference.any_order import FillingOrder, fill_places
from pretrain.inference.decoder import Decoder
from pretrain.inference.hole import Sides
from pretrain.inference.infilling import HoleRequest, fill_known_length, fill_unknown_length
from pretrain.inference.sampling import Sampling
from pretrain.inference.token_rules import TokenRules
from pretrain.model.layout import TokenLayout
from pretrain.model.transformer import TwoStreamTransformer
from tests.small_models import small_model

pytestmark = pytest.mark.slow
NUM_SAMPLES = 100_000
BATCH = 1000
VOCAB = 3
HOLE = 3
SEGMENT = 16
PREFIX, SUFFIX = np.array([1, 2]), np.array([0])
SIDES = Sides(PREFIX, SUFFIX)
END = 2
SAMPLINGS = {
    "temperature 1": Sampling(1.0),
    "temperature 0.6": Sampling(0.6),
    "temperature 1.5": Sampling(1.5),
    "top-k": Sampling(1.0, top_k=2),
    "top-p": Sampling(1.5, top_p=0.9),
}
Written = tuple[tuple[int, int], ...]
"""(place in the hole, token) in the order of choice."""


def dependent_model() -> TwoStreamTransformer:
    """A model whose tokens depend on each other, so that proposals are often wrong."""
    model = small_model(vocab_size=VOCAB, norm="pre")
    torch.manual_seed(8)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=1.0)
    return model


@torch.inference_mode()
def place_logits(model: TwoStreamTransformer, hole_tokens: int, written: Written, place: int) -> Tensor:
    """The logits [V] of a place, given the tokens written before it, from a whole pass."""
    rank_T, hole_T = [len(written) + 2] * hole_tokens, [0] * hole_tokens
    for rank, (before, token) in enumerate(written):
        rank_T[before], hole_T[before] = rank + 1, token
    rank_T[place] = len(written) + 1
    rank_1L = torch.tensor([[0] * len(PREFIX) + rank_T + [0] * len(SUFFIX)])
    content = TokenLayout.contiguous(rank_1L, torch.zeros_like(rank_1L))
    tokens_1L = torch.tensor([[*PREFIX.tolist(), *hole_T, *SUFFIX.tolist()]])
    target = content.at(torch.tensor([[len(PREFIX) + place]]))
    logits_V: Tensor = model(tokens_1L, content, target).logits_BPV[0, 0]
    return logits_V


def distribution(
    model: TwoStreamTransformer, hole_tokens: int, written: Written, place: int, sampling: Sampling
) -> list[float]:
    """The probabilities of the tokens in a place."""
    return sampling.probabilities(place_logits(model, hole_tokens, written, place)[None])[0].tolist()


def check_chi_squared(cells: Sequence[tuple[float, float]], num_free: int) -> None:
    """p > 0.01 for (seen, expected) numbers, by Wilson and Hilferty; the draws are keyed, so it always ends alike."""
    statistic = sum((seen - expected) ** 2 / expected for seen, expected in cells)
    part = 2 / (9 * num_free)
    assert statistic < num_free * (1 - part + 2.326 * math.sqrt(part)) ** 3


def check_outcomes(seen: Mapping[tuple[int, ...], int], probability: Mapping[tuple[int, ...], float]) -> None:
    """The outcomes are those of a distribution; rare ones are counted together."""
    assert sum(probability.values()) == pytest.approx(1)
    assert all(probability.get(outcome, 0) > 0 for outcome in seen), "only what is possible"
    num_samples = sum(seen.values())
    assert num_samples == NUM_SAMPLES
    cells = {one: num_samples * part for one, part in probability.items() if num_samples * part >= 5}
    rows = [(float(seen[one]), expected) for one, expected in cells.items()]
    rest = num_samples - sum(cells.values())
    if rest > 0.5:
        rows.append((num_samples - sum(number for number, _ in rows), rest))
    assert len(rows) > 2, "there are several outcomes"
    check_chi_squared(rows, len(rows) - 1)


@pytest.mark.parametrize(
    ("name", "at_once"),
    [("temperature 1", 2), ("temperature 0.6", 2), ("top-k", 2), ("top-p", 2), ("temperature 1", 3)],
)
def test_by_certainty_each_token_is_drawn_given_those_before_it(name: str, at_once: int) -> None:
    """The order depends on what is drawn: for each beginning and next place, its tokens are those of the model."""
    check_any_order(SAMPLINGS[name], at_once, "most_certain")


@pytest.mark.parametrize("name", ["temperature 1", "top-p"])
def test_in_turn_each_token_is_drawn_given_those_before_it(name: str) -> None:
    check_any_order(SAMPLINGS[name], 3, "left_to_right")


class TableText:
    """An `OpenText` and its session of a toy model: what it predicts is from whole passes, each made once."""

    def __init__(self, logits: Callable[[Written, int], Tensor]) -> None:
        self.row_T, self.session, self.model, self.device = np.arange(HOLE), self, self, torch.device("cpu")
        self.written: Written = ()
        self._logits = logits

    def column(self, place: int) -> int:
        return place

    def step(
        self, token_BT: Tensor, column_BT: Tensor, rank_BT: Tensor, predicted_BP: Tensor, bound_BP: Tensor
    ) -> Tensor:
        before = self.written
        new = tuple(zip(column_BT[0].tolist(), token_BT[0].tolist(), strict=True))
        assert rank_BT[0].tolist() == list(range(len(new)))
        self.written += new
        rows = [
            self._logits(before + new[:bound], place)
            for place, bound in zip(predicted_BP[0].tolist(), bound_BP[0].tolist(), strict=True)
        ]
        return torch.stack(rows)[None]

    def erase(self, column_BT: Tensor) -> None:
        erased = set(column_BT[0].tolist())
        self.written = tuple(one for one in self.written if one[0] not in erased)


def check_any_order(sampling: Sampling, at_once: int, order: FillingOrder) -> None:
    model = dependent_model()
    logits = cache(partial(place_logits, model, HOLE))
    seen: Counter[tuple[Written, int, int]] = Counter()
    num_rejected = 0
    for sample in range(NUM_SAMPLES):
        text = TableText(logits)
        found = fill_places(
            text,  # type: ignore[arg-type]
            range(HOLE),
            sampling,
            TokenRules(),
            at_once=at_once,
            order=order,
            sample=sample,
        )
        written: Written = tuple((place, found.tokens[place]) for place in found.order)
        for number, (place, token) in enumerate(written):
            seen[written[:number], place, token] += 1
        num_rejected += found.num_passes > 2
    assert num_rejected > NUM_SAMPLES / 50, "proposals were rejected"
    cells, num_free = [], 0
    for before, place in {(one[0], one[1]) for one in seen}:
        numbers = [seen[before, place, token] for token in range(VOCAB)]
        parts = sampling.probabilities(logits(before, place)[None])[0].tolist()
        possible = [
            (float(number), sum(numbers) * part)
            for number, part in zip(numbers, parts, strict=True)
            if part > 0
        ]
        assert sum(number for number, _ in possible) == sum(numbers)
        if len(possible) > 1 and min(expected for _, expected in possible) >= 5:
            cells += possible
            num_free += len(possible) - 1
    assert num_free >= 5
    check_chi_squared(cells, num_free)


@pytest.mark.parametrize("name", SAMPLINGS)
def test_from_left_to_right_fillings_of_known_length_are_the_models(name: str) -> None:
    model, sampling = dependent_model(), SAMPLINGS[name]
    probability = {
        tokens: math.prod(
            distribution(model, HOLE, tuple(enumerate(tokens[:place])), place, sampling)[token]
            for place, token in enumerate(tokens)
        )
        for tokens in itertools.product(range(VOCAB), repeat=HOLE)
    }
    seen: Counter[tuple[int, ...]] = Counter()
    decoder = Decoder(model, SEGMENT)
    for first in range(0, NUM_SAMPLES, BATCH):
        request = HoleRequest(SIDES, HOLE, first)
        (found,) = fill_known_length(decoder, [request], sampling, TokenRules(), num_samples=BATCH, at_once=3)
        seen.update(one.tokens for one in found)
    check_outcomes(seen, probability)


@pytest.mark.parametrize("name", SAMPLINGS)
def test_from_left_to_right_fillings_of_unknown_length_are_the_models(name: str) -> None:
    """The only place has room for three tokens and the end, which is forced after the third."""
    model, sampling = dependent_model(), SAMPLINGS[name]
    probability: dict[tuple[int, ...], float] = {}
    others = [token for token in range(VOCAB) if token != END]
    for length in range(HOLE + 1):
        for tokens in itertools.product(others, repeat=length):
            steps = [*tokens, END] if length < HOLE else [*tokens]
            probability[tokens] = math.prod(
                distribution(model, HOLE + 1, tuple(enumerate(tokens[:place])), place, sampling)[token]
                for place, token in enumerate(steps)
            )
    seen: Counter[tuple[int, ...]] = Counter()
    decoder = Decoder(model, SEGMENT)
    for first in range(0, NUM_SAMPLES, BATCH):
        request = HoleRequest(SIDES, HOLE, first)
        (found,) = fill_unknown_length(
            decoder, [request], sampling, TokenRules(end=END), num_samples=BATCH, at_once=3
        )
        seen.update(one.tokens for one in found)
    check_outcomes(seen, probability)
