"""Cuts are near their targets and cover everything."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_prep.steps.shard_plan import even_cuts


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=200), st.integers(1, 5000))
def test_cuts_cover_everything_in_runs_of_about_the_target(sizes: list[int], target: int) -> None:
    cuts = even_cuts(np.array(sizes), target)
    assert cuts[0] == 0
    assert cuts[-1] == len(sizes)
    assert all(start < end for start, end in zip(cuts[:-1], cuts[1:], strict=True))
    runs = [sum(sizes[start:end]) for start, end in zip(cuts[:-1], cuts[1:], strict=True)]
    # Equal runs are at most 1.5 targets, or a document; each bound moves by at most half a document.
    assert max(runs) <= max(1.5 * target, max(sizes)) + max(sizes)


def test_equal_documents_are_cut_evenly() -> None:
    assert even_cuts(np.full(100, 10), 250) == [0, 25, 50, 75, 100]
