"""Loops are found where there are any."""

from hypothesis import given
from hypothesis import strategies as st

from pretrain.inference.token_rules import continuing_a_loop


def plainly(text: tuple[int, ...], max_repeats: int) -> set[int]:
    found = set()
    for run in range(1, 65):
        loop = max(run * max_repeats, 16)
        if len(text) >= loop and all(
            text[i] == text[i - run] for i in range(len(text) - loop + run, len(text))
        ):
            found.add(text[-run])
    return found


few_tokens = st.lists(st.integers(0, 2), min_size=1, max_size=30).map(tuple)


@given(
    st.lists(st.integers(0, 9), max_size=20),
    few_tokens,
    st.integers(1, 40),
    st.integers(0, 30),
    st.integers(2, 5),
)
def test_tokens_that_continue_a_loop_are_found(
    before: list[int], run: tuple[int, ...], times: int, more: int, max_repeats: int
) -> None:
    text = (*before, *run * times, *run[:more])
    assert set(continuing_a_loop(text, max_repeats)) == plainly(text, max_repeats)


def test_a_loop_continues_with_the_next_token_of_the_run() -> None:
    run = tuple(range(10))
    assert list(continuing_a_loop((99, *run, *run), 2)) == [0]
    assert list(continuing_a_loop((99, *run, *run, 0, 1), 2)) == [2]
    assert list(continuing_a_loop((*run, *run[:9]), 2)) == []
    assert list(continuing_a_loop((*run, *run), 3)) == []


def test_short_repetitions_are_ordinary_code() -> None:
    assert list(continuing_a_loop((7,) * 15, 2)) == []
    assert set(continuing_a_loop((7,) * 16, 2)) == {7}
    assert list(continuing_a_loop((1, 2, 3) * 5, 2)) == []


def test_runs_of_more_than_64_tokens_are_not_looked_for() -> None:
    assert list(continuing_a_loop(tuple(range(64)) * 2, 2)) == [0]
    assert list(continuing_a_loop(tuple(range(65)) * 2, 2)) == []
