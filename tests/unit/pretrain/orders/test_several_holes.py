"""Several holes: apart from each other, of every number and order, no prediction sees what comes after it."""

from collections import Counter
from itertools import pairwise

import numpy as np
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from pretrain.orders.config import MAX_HOLES, MIN_HOLES, ObjectiveConfig, most_holes
from pretrain.orders.draws import DrawTable
from pretrain.orders.order import Orders
from pretrain.orders.several_holes import SeveralHolesOrders

CPU = torch.device("cpu")


def holes(
    lanes: int, length: int, share: float = 0.5, known: float = 0.5, gap: int = 4, seed: int = 0
) -> Orders:
    config = ObjectiveConfig(target_share=share, known_length_share=known, max_gap_tokens=gap, holes=1)
    maker = SeveralHolesOrders(config, length, CPU)
    return maker.orders(DrawTable(maker.num_draws, CPU).draws(seed, 0, range(lanes)))


def holes_of(orders: Orders, lane: int) -> list[range]:
    """Return the holes of a lane whose ends are predicted, in the order of prediction."""
    found: list[range] = []
    first = None
    for index, ends in zip(orders.target_BP[lane].tolist(), orders.ends_hole_BP[lane].tolist(), strict=True):
        first = index if first is None else first
        if ends:
            found.append(range(first, index + 1))
            first = None
    return found


@given(
    length=st.integers(8, 60),
    share=st.floats(0.3, 0.8),
    known=st.sampled_from([0.0, 0.5, 1.0]),
    gap=st.integers(1, 9),
    seed=st.integers(0, 10**6),
)
def test_predictions_see_the_context_and_what_was_predicted_before(
    length: int, share: float, known: float, gap: int, seed: int
) -> None:
    num_targets = max(1, round(share * length))
    assume(most_holes(length, num_targets) >= MIN_HOLES)
    orders = holes(6, length, share, known, gap, seed)
    assert orders.target_BP.shape == (6, num_targets)
    config = ObjectiveConfig(
        target_share=share, known_length_share=known, max_gap_tokens=gap, infill=0, holes=1
    )
    extent = config.extent(length)
    content, targets = orders.layouts(torch.zeros_like(orders.rank_BL), None, extent)
    assert int(content.position_BX.max()) < extent
    assert (targets.rank_BX.diff(dim=1) > 0).all()
    assert (content.position_BX.diff(dim=1) > 0).all()
    for lane in range(6):
        rank_L = orders.rank_BL[lane]
        late = rank_L[rank_L > 0].tolist()
        assert len(set(late)) == len(late)
        assert len(set(targets.position_BX[lane].tolist())) == num_targets
        seen_before: set[int] = set()
        ends = orders.ends_hole_BP[lane].tolist()
        num_ends = sum(ends)
        tail = set(range(length - num_targets + int((~orders.ends_hole_BP[lane]).sum()), length))
        for index, is_end, rank in zip(
            orders.target_BP[lane].tolist(), ends, targets.rank_BX[lane].tolist(), strict=True
        ):
            visible = {other for other in range(length) if int(rank_L[other]) < rank and int(rank_L[other])}
            assert seen_before <= visible
            unpredicted = visible - seen_before
            assert unpredicted == set() or (index in tail or len(unpredicted) == num_ends)
            if not is_end:
                assert index not in visible
                seen_before.add(index)
        assert num_ends <= MAX_HOLES
        assert known < 1 or num_ends == 0


def test_holes_of_every_number_lie_apart_in_any_order() -> None:
    lanes, length, num_targets = 2000, 40, 20
    orders = holes(lanes, length, known=0.0)
    counts: Counter[int] = Counter()
    ascending = 0
    for lane in range(lanes):
        ends = orders.ends_hole_BP[lane]
        counts[int(ends.sum())] += 1
        own = holes_of(orders, lane)
        ascending += [hole.start for hole in own] == sorted(hole.start for hole in own)
        for one, other in pairwise(sorted(own, key=lambda hole: hole.start)):
            assert one.stop < other.start, "there is a token between two holes"
        assert sum(map(len, own)) + len(own) <= num_targets
        in_order = [index for hole in own for index in [*hole, hole[-1]]]
        assert orders.target_BP[lane, : len(in_order)].tolist() == in_order
    assert set(counts) == {2, 3, 4}
    assert min(counts.values()) > lanes / 3 * 0.85
    # 1/2, 1/6 and 1/24 of those with two, three and four holes
    assert abs(ascending / lanes - (1 / 2 + 1 / 6 + 1 / 24) / 3) < 5 * np.sqrt(0.24 * 0.76 / lanes)


def test_the_text_after_a_hole_of_unknown_length_is_moved_and_after_a_known_one_not() -> None:
    moved = holes(200, 30, known=0.0).position_BL[:, -1] - 29
    assert int(moved.min()) >= 1
    assert int(moved.max()) <= 4 * MAX_HOLES
    still = holes(200, 30, known=1.0)
    assert (still.position_BL == torch.arange(30)).all()
    assert not still.ends_hole_BP.any()


def test_few_predictions_have_few_holes() -> None:
    assert most_holes(8, 4) == 2
    orders = holes(100, 8, known=0.0)
    assert set(orders.ends_hole_BP.sum(dim=1).tolist()) == {2}
