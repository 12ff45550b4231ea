"""An end that is forced because a place is full is distinguished from one that the model chose."""

import numpy as np
import pytest
import torch
from torch import Tensor

from pretrain.inference.beam import beam_search
from pretrain.inference.decoder import Decoder
from pretrain.inference.generation import Rating, generate
from pretrain.inference.hole import Sides
from pretrain.inference.infilling import HoleRequest, fill_unknown_length
from pretrain.inference.sampling import GREEDY, Sampling
from pretrain.inference.token_rules import TokenRules
from tests.small_models import small_model


class TwoTokens:
    """Lanes that are surest to write 1, 1 and the end, 0."""

    def __init__(self, lanes: int) -> None:
        self._lanes, self._num_tokens = lanes, 0

    def first(self) -> Tensor:
        scores = [0.0, 9.0] if self._num_tokens < 2 else [9.0, 0.0]
        return torch.tensor([scores]).expand(self._lanes, -1)

    def following(self, token_B: Tensor) -> Tensor:
        self._num_tokens += 1
        return self.first()

    def reorder(self, lane_B: Tensor) -> None:
        """All are alike."""

    def retain(self, lane_X: Tensor) -> None:
        self._lanes = len(lane_X)


def test_an_end_at_the_limit_that_the_model_chose_is_its_own() -> None:
    rules = TokenRules(end=0)
    for limit, forced in ((1, True), (2, False), (3, False)):
        (drawn,) = generate(TwoTokens(1), [limit], GREEDY, rules, must_end=True)
        ((best,),) = beam_search(TwoTokens(1), [limit], 1, rules, must_end=True)
        assert drawn.tokens == best.tokens == (1,) * min(limit, 2)
        assert drawn.ended
        assert best.ended
        assert drawn.forced == best.forced == forced


def test_a_lane_stays_forced_while_others_continue() -> None:
    found = generate(TwoTokens(3), [1, 2, 2], GREEDY, TokenRules(end=0), must_end=True)
    assert [one.forced for one in found] == [True, False, False]


class Fading(TwoTokens):
    """Lanes that are surest to write 1 for ever, while the end, 0, is about as likely after the second one."""

    def first(self) -> Tensor:
        scores = [8.9, 9.0] if self._num_tokens == 2 else [0.0, 9.0]
        return torch.tensor([scores]).expand(self._lanes, -1)


def test_a_text_is_cut_where_the_end_is_likely_if_it_is_rated_higher_there() -> None:
    def rated(power: float) -> Rating:
        return lambda log_likelihood, num_tokens: log_likelihood / num_tokens**power

    for limits in ([6], [3, 6, 1]):
        found = generate(
            Fading(len(limits)), limits, GREEDY, TokenRules(end=0), must_end=True, rating=rated(1.0)
        )
        after_two = [one for one, limit in zip(found, limits, strict=True) if limit > 2]
        assert [len(one.tokens) for one in after_two] == [2] * len(after_two)
        logits = torch.tensor([[0.0, 9.0], [0.0, 9.0], [8.9, 9.0]], dtype=torch.float64).log_softmax(-1)
        expected = float(logits[0, 1] + logits[1, 1] + logits[2, 0])
        assert [one.log_likelihood for one in after_two] == pytest.approx(
            [expected] * len(after_two), rel=1e-6
        )
        assert all(one.ended and not one.forced for one in after_two)
    whole = generate(Fading(1), [6], GREEDY, TokenRules(end=0), must_end=True)
    assert (len(whole[0].tokens), whole[0].forced) == (6, True)
    # The end is the first choice after two tokens, and no beginning is likelier.
    (own,) = generate(TwoTokens(1), [6], GREEDY, TokenRules(end=0), must_end=True, rating=rated(0.7))
    assert len(own.tokens) == 2


def test_a_sample_is_not_cut() -> None:
    decoder, sides = Decoder(small_model(), 32), Sides(np.array([1, 2, 3]), np.array([7, 8]))
    rules, request = TokenRules(end=4), HoleRequest(sides, 5)
    powers = [
        fill_unknown_length(decoder, [request], sampling, rules, num_samples=8, length_power=0.0)[0]
        for sampling in (Sampling(1.0), GREEDY)
    ]
    assert {len(one.tokens) for one in powers[1]} <= {0, 1}
    assert any(len(one.tokens) > 1 for one in powers[0])


@pytest.mark.parametrize("beam", [None, 3])
def test_a_filling_that_would_continue_is_forced_to_end(beam: int | None) -> None:
    model, sides = small_model(), Sides(np.array([1, 2, 3]), np.array([7, 8]))
    for bias, length, forced in ((-50.0, 5, True), (50.0, 0, False)):
        with torch.no_grad():
            model.output_bias_V[4] = bias
        wanted = [HoleRequest(sides, 5)]
        ((found,),) = fill_unknown_length(Decoder(model, 32), wanted, GREEDY, TokenRules(end=4), beam=beam)
        assert (len(found.tokens), found.ended, found.forced) == (length, True, forced)
