"""Without ZeRO every worker has all of the state: it is dealt out, so that a checkpoint holds everything once."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from pretrain.engine.state import Fragment, _share_of_rank


def whole_fragments(sizes: list[int]) -> list[Fragment]:
    return [Fragment(f"p{n}", (size,), 0, size, torch.zeros(size), 0) for n, size in enumerate(sizes)]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(1, 9))
def test_every_element_is_dealt_once_and_evenly(sizes: list[int], world_size: int) -> None:
    seen = [torch.zeros(size) for size in sizes]
    counts = []
    for rank in range(world_size):
        dealt = _share_of_rank(whole_fragments(sizes), rank, world_size)
        for fragment in dealt:
            assert fragment.numel > 0
            assert fragment.offset == fragment.start
            seen[int(fragment.name[1:])][fragment.start : fragment.start + fragment.numel] += 1
        counts.append(sum(fragment.numel for fragment in dealt))
    assert all(bool((count == 1).all()) for count in seen)
    assert max(counts) - min(counts) <= 1
