"""A beam over texts whose scores are known: it is done in time, and what repeats itself does not win."""

import math

import torch
from torch import Tensor

from pretrain.inference.beam import beam_search
from pretrain.inference.vocabulary import TokenRules

END, LOOP, OTHER = 0, 1, 2


class Looping:
    """One text, `width` lanes: LOOP is almost certain for ever; behind OTHER the end is."""

    def __init__(self, width: int) -> None:
        self._last_B = torch.full((width,), LOOP)
        self.num_steps = 0

    def first(self) -> Tensor:
        return self._scores()

    def following(self, token_B: Tensor) -> Tensor:
        self._last_B = token_B
        self.num_steps += 1
        return self._scores()

    def reorder(self, lane_B: Tensor) -> None:
        """Nothing but the last token is remembered."""

    def _scores(self) -> Tensor:
        looping, ending = torch.tensor([1e-6, 0.95, 0.05]).log(), torch.tensor([0.98, 0.01, 0.01]).log()
        return torch.where((self._last_B == OTHER)[:, None], ending, looping)


def test_ended_texts_come_before_one_that_repeats_itself() -> None:
    text = Looping(2)
    (found,) = beam_search(text, [50], 2, TokenRules(end=END), ended_first=True)
    assert [one.ended for one in found] == [True, True]
    # By likelihood per token: one certain token more makes the mean higher.
    assert [one.tokens for one in found] == [(LOOP, OTHER), (OTHER,)]
    assert math.isclose(found[1].log_likelihood, math.log(0.05 * 0.98), rel_tol=1e-6)
    assert text.num_steps < 10, "two have ended: there is nothing to wait for"


def test_without_it_the_likeliest_per_token_wins() -> None:
    text = Looping(2)
    (found,) = beam_search(text, [50], 2, TokenRules(end=END))
    assert not found[0].ended
    assert found[0].tokens == (LOOP,) * 50
    assert text.num_steps == 49


def test_a_text_of_which_nothing_ends_is_cut() -> None:
    (found,) = beam_search(Looping(2), [1], 2, TokenRules(end=END), ended_first=True)
    assert [one.tokens for one in found] == [(LOOP,), (OTHER,)]
