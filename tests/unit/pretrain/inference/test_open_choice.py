"""What is shown of a hole, or dropped, before its fillings are written is never wrong."""

import math
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from pretrain.inference.infilling import HOLE_LENGTH_POWER
from pretrain.inference.open_choice import OpenChoice

END = 0
TOKEN_TEXTS = {1: b"a", 2: b"b", 3: b"ab"}


@dataclass(frozen=True)
class Lane:
    """A lane as it would be written to its end: what is chosen at each step, and the score of the end there."""

    tokens: list[int]
    scores: list[float]
    end_scores: list[float]
    over: str


def text(tokens: list[int]) -> bytes:
    return b"".join(TOKEN_TEXTS[token] for token in tokens)


def rated(scores: list[float]) -> float:
    return math.fsum(scores) / len(scores) ** HOLE_LENGTH_POWER


def endings(lane: Lane, may_cut: bool) -> list[tuple[float, list[int]]]:
    """The fillings of a lane that is over, with their ratings."""
    if lane.over == "stopped":
        return [(rated(lane.scores), lane.tokens)]
    found = [(rated(lane.scores), lane.tokens[:-1])]
    if may_cut:
        for length in range(1, len(lane.tokens) - 1):
            found.append((rated([*lane.scores[:length], lane.end_scores[length]]), lane.tokens[:length]))
    return found


@st.composite
def lanes_of_places(draw: st.DrawFn, may_stop: bool) -> list[Lane]:
    shared = draw(st.lists(st.integers(1, 3), max_size=6))
    score = st.floats(-8, 0) | st.floats(-0.1, 0)
    lanes = []
    for _ in range(draw(st.integers(1, 4))):
        own = [*shared[: draw(st.integers(0, 6))], *draw(st.lists(st.integers(1, 3), max_size=6))]
        over = draw(st.sampled_from(["ended", "stopped"])) if may_stop and own else "ended"
        tokens = own if over == "stopped" else [*own, END]
        scores = draw(st.lists(score, min_size=len(tokens), max_size=len(tokens)))
        end_scores = draw(st.lists(score, min_size=len(tokens), max_size=len(tokens)))
        lanes.append(Lane(tokens, scores, end_scores, over))
    return lanes


def choice_of(lanes: list[Lane], may_cut: bool, always_ends: bool) -> OpenChoice:
    return OpenChoice([len(lane.tokens) for lane in lanes], 1, may_cut=may_cut, always_ends=always_ends)


def advance(choice: OpenChoice, lanes: list[Lane], step: int, dropped: set[int]) -> None:
    for number, lane in enumerate(lanes):
        if number in dropped or step >= len(lane.tokens):
            continue
        over = lane.over if step == len(lane.tokens) - 1 else None
        choice.add(number, lane.tokens[step], lane.scores[step], lane.end_scores[step], over)
    dropped |= choice.drop()


def shown(choice: OpenChoice, lanes: list[Lane], step: int) -> bytes:
    def text_of(lane: int, num_tokens: int | None) -> bytes:
        written = [token for token in lanes[lane].tokens[: step + 1] if token != END]
        return text(written if num_tokens is None else written[:num_tokens])

    return choice.common(0, text_of)


@given(lanes_of_places(may_stop=False), st.booleans())
def test_what_is_shown_begins_the_best_filling_and_what_is_dropped_is_not_it(
    lanes: list[Lane], may_cut: bool
) -> None:
    ranked = [one for lane in lanes for one in endings(lane, may_cut)]
    best_rating = max(rating for rating, _ in ranked)
    best = {text(tokens) for rating, tokens in ranked if rating == best_rating}
    choice, dropped, before = choice_of(lanes, may_cut, always_ends=True), set[int](), b""
    for step in range(max(len(lane.tokens) for lane in lanes)):
        advance(choice, lanes, step, dropped)
        now = shown(choice, lanes, step)
        assert now.startswith(before)
        before = now
    found = choice.chosen(0)
    assert found is not None
    filling = text(lanes[found.lane].tokens[: found.num_tokens])
    assert filling in best
    assert filling.startswith(before)
    assert math.isclose(
        found.log_likelihood / (found.num_tokens + 1) ** HOLE_LENGTH_POWER, best_rating, abs_tol=1e-9
    )


@given(lanes_of_places(may_stop=True), st.booleans(), st.integers(0, 12))
def test_what_is_shown_begins_the_answer_whenever_time_is_up_or_a_lane_is_stopped(
    lanes: list[Lane], may_cut: bool, last_step: int
) -> None:
    choice, dropped, before = choice_of(lanes, may_cut, always_ends=False), set[int](), b""
    last_step = min(last_step, max(len(lane.tokens) for lane in lanes) - 1)
    for step in range(last_step + 1):
        advance(choice, lanes, step, dropped)
        now = shown(choice, lanes, step)
        assert now.startswith(before)
        before = now
    over = [lane for lane in lanes if len(lane.tokens) <= last_step + 1]
    found = choice.chosen(0)
    if not over:
        assert found is None
        assert not dropped
        assert all(text(lane.tokens[: last_step + 1]).startswith(before) for lane in lanes)
        return
    assert found is not None
    filling = text(lanes[found.lane].tokens[: found.num_tokens])
    ranked = [one for lane in over for one in endings(lane, may_cut)]
    best_rating = max(rating for rating, _ in ranked)
    assert filling in {text(tokens) for rating, tokens in ranked if rating == best_rating}
    assert filling.startswith(before)


def test_a_lane_is_dropped_as_soon_as_it_cannot_win() -> None:
    choice = OpenChoice([8, 16], 1, may_cut=False, always_ends=True)
    choice.add(0, 1, -0.1, -9.0, None)
    choice.add(1, 1, -3.0, -9.0, None)
    assert choice.drop() == set()
    choice.add(0, END, -0.1, -0.1, "ended")
    choice.add(1, 2, -0.1, -9.0, None)
    assert choice.drop() == {1}
    assert choice.common(0, lambda lane, num_tokens: b"xy"[lane : lane + 1]) == b"x"
