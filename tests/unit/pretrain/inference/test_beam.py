"""A beam over texts whose scores are known: it is done in time, and what repeats itself does not win."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pretrain.inference.beam import _assign_lanes, beam_search
from pretrain.inference.session import moved_lanes
from pretrain.inference.token_rules import TokenRules

END, LOOP, OTHER = 0, 1, 2


class Looping:
    """One text, `width` lanes: LOOP is almost certain for ever; behind OTHER the end is, but not after `patience`."""

    def __init__(self, width: int, patience: int = 1000) -> None:
        self._last_B = torch.full((width,), LOOP)
        self.num_steps, self._patience = 0, patience

    def first(self) -> Tensor:
        return self._scores()

    def following(self, token_B: Tensor) -> Tensor:
        self._last_B = token_B
        self.num_steps += 1
        return self._scores()

    def reorder(self, lane_B: Tensor) -> None:
        """Nothing but the last token is remembered."""

    def retain(self, lane_X: Tensor) -> None:
        self._last_B = self._last_B[lane_X]

    def _scores(self) -> Tensor:
        end = 0.98 if self.num_steps < self._patience else 1e-6
        looping = torch.tensor([1e-6, 0.95, 0.05]).log()
        ending = torch.tensor([end, 0.99 - end, 0.01]).log()
        return torch.where((self._last_B == OTHER)[:, None], ending, looping)


def test_ended_texts_come_before_one_that_repeats_itself() -> None:
    (found,) = beam_search(Looping(2, patience=4), [50], 2, TokenRules(end=END), ended_first=True)
    # By likelihood per token: certain tokens make the mean higher.
    assert [one.tokens for one in found] == [(LOOP, LOOP, OTHER), (LOOP, OTHER)]
    assert [one.ended for one in found] == [True, True]
    assert math.isclose(found[1].log_likelihood, math.log(0.95 * 0.05 * 0.98), rel_tol=1e-6)


def test_a_text_is_done_when_nothing_that_lives_is_better() -> None:
    class Fading(Looping):
        """Nothing is certain any more after three tokens."""

        def _scores(self) -> Tensor:
            return super()._scores() if self.num_steps < 3 else torch.full((len(self._last_B), 3), -9.0)

    text = Fading(2)
    (found,) = beam_search(text, [50], 2, TokenRules(end=END), ended_first=True)
    assert [one.ended for one in found] == [True, True]
    assert text.num_steps < 10


def test_without_it_the_most_likely_per_token_wins() -> None:
    text = Looping(2)
    (found,) = beam_search(text, [50], 2, TokenRules(end=END))
    assert not found[0].ended
    assert found[0].tokens == (LOOP,) * 50
    assert text.num_steps == 49


def test_a_text_of_which_nothing_can_end_is_cut() -> None:
    rules = TokenRules(end=END, may_be_empty=False)
    (found,) = beam_search(Looping(2), [1], 2, rules, ended_first=True)
    assert [(one.tokens, one.ended) for one in found] == [((LOOP,), False), ((OTHER,), False)]


class NeverEnding(Looping):
    """The end is never among the likeliest; behind three tokens it is likelier than elsewhere."""

    def _scores(self) -> Tensor:
        end = 1e-3 if self.num_steps == 3 else 1e-6
        return torch.tensor([end, 0.6 - end, 0.4]).log().expand(len(self._last_B), -1)


def test_where_no_end_is_among_the_most_likely_tokens_the_text_ends_where_it_is_most_likely() -> None:
    rules = TokenRules(end=END, may_be_empty=False)
    (found,) = beam_search(NeverEnding(2), [50], 2, rules, ended_first=True)
    assert (found[0].tokens, found[0].ended) == ((LOOP,) * 3, True)
    assert found[0].log_likelihood == pytest.approx(
        2 * math.log(0.6) + math.log(0.599) + math.log(1e-3), abs=3e-3
    )
    assert [one.ended for one in found[1:]] == [False]


class Silent(Looping):
    """Would rather say nothing at all."""

    def _scores(self) -> Tensor:
        start = torch.tensor([0.9, 0.06, 0.04]).log().expand(len(self._last_B), -1)
        return super()._scores() if self.num_steps else start


def test_no_hypothesis_is_empty_where_that_is_not_allowed() -> None:
    for may_be_empty in (True, False):
        rules = TokenRules(end=END, may_be_empty=may_be_empty)
        (found,) = beam_search(Silent(2), [50], 2, rules, ended_first=True)
        assert (() in [one.tokens for one in found]) == may_be_empty
        assert [one.ended for one in found] == [True, True]


def test_a_beam_leaves_its_loops() -> None:
    rules = TokenRules(end=END, may_be_empty=False, max_repeats=2)
    text = Looping(2)
    (found,) = beam_search(text, [50], 2, rules)
    assert max(one.tokens.count(LOOP) for one in found) <= 16
    assert found[0].ended


@given(
    st.integers(1, 6).flatmap(
        lambda width: st.tuples(st.just(width), st.lists(st.integers(0, width - 1), max_size=width))
    )
)
def test_who_can_stays_in_its_lane(case: tuple[int, list[int]]) -> None:
    width, lanes = case
    active = [(-float(number), lane, 7) for number, lane in enumerate(lanes)]
    chosen = _assign_lanes(active, width)
    assert len(chosen) == width
    assert sorted(one for one in chosen if one[0] > -math.inf) == sorted(active)
    for lane, (score, came_from, _) in enumerate(chosen):
        if lane in lanes or score == -math.inf:
            assert came_from == lane


def test_lanes_that_stay_are_not_moved() -> None:
    to_X, from_X = moved_lanes(torch.tensor([0, 0, 2, 1]))
    assert (to_X.tolist(), from_X.tolist()) == ([1, 3], [0, 1])
