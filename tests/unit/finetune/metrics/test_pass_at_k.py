"""pass@k against trying every choice of samples."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetune.metrics.pass_at_k import pass_at_k


@given(st.lists(st.tuples(st.integers(3, 7), st.integers(0, 7)), min_size=1, max_size=4), st.integers(1, 3))
def test_it_is_the_share_of_choices_with_a_pass(problems: list[tuple[int, int]], k: int) -> None:
    problems = [(samples, min(samples, passed)) for samples, passed in problems]
    shares = []
    for samples, passed in problems:
        choices = list(combinations([True] * passed + [False] * (samples - passed), k))
        shares.append(sum(any(choice) for choice in choices) / len(choices))
    found = pass_at_k([samples for samples, _ in problems], [passed for _, passed in problems], k)
    assert found.value == pytest.approx(sum(shares) / len(shares))


def test_many_samples_do_not_overflow() -> None:
    assert 0.63 < pass_at_k([10_000], [100], 100).value < 0.64


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 10 samples"):
        pass_at_k([10, 9], [1, 1], 10)
    with pytest.raises(ValueError, match="more passed"):
        pass_at_k([2], [3], 1)
