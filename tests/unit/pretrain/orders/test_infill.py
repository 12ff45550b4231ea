"""Holes: of every length, everywhere; an unknown length shows nowhere and its end is predicted once."""

from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pretrain.orders.config import ObjectiveConfig
from pretrain.orders.draws import DrawTable
from pretrain.orders.infill import INFILL_DRAWS, FillInTheMiddleOrders, InfillOrders, hole_weights
from pretrain.orders.order import Orders

CPU = torch.device("cpu")
SIGMAS = 5


def holes(
    lanes: int, length: int, share: float = 0.5, known: float = 0.0, gap: int = 4, seed: int = 0
) -> Orders:
    config = ObjectiveConfig(target_share=share, known_length_share=known, max_gap_tokens=gap)
    draws = DrawTable(INFILL_DRAWS, CPU).draws(seed, 0, range(lanes))
    return InfillOrders(config, length, CPU).orders(draws)


def plain_hole(length: int, num_targets: int, start: int, size: int, gap: int) -> tuple[list[int], list[int]]:
    """(position, rank) of every token, given token by token; gap 0 stands for a known length."""
    positions, ranks = [], []
    tail_starts = length - (num_targets - size)
    for index in range(length):
        in_hole = start <= index < start + size
        positions.append(index if index < start + size else index + gap)
        if in_hole:
            ranks.append(index - start + 1)
        else:
            ranks.append(size + 1 + index - tail_starts if index >= tail_starts else 0)
    return positions, ranks


@given(
    length=st.integers(1, 60),
    share=st.floats(0.01, 1.0),
    known=st.sampled_from([0.0, 0.5, 1.0]),
    gap=st.integers(1, 9),
    seed=st.integers(0, 10**6),
)
def test_every_hole_is_laid_out_as_drawn(
    length: int, share: float, known: float, gap: int, seed: int
) -> None:
    orders = holes(5, length, share, known, gap, seed)
    num_targets = orders.target_BP.shape[1]
    assert num_targets == max(1, round(share * length))
    for position_L, rank_L, target_P, ends_P in zip(
        *(
            part.tolist()
            for part in (orders.position_BL, orders.rank_BL, orders.target_BP, orders.ends_hole_BP)
        ),
        strict=True,
    ):
        start = target_P[0]
        in_one_piece = [number for number, index in enumerate(target_P) if index == start + number]
        size = ends_P.index(True) if any(ends_P) else len(in_one_piece)
        drawn_gap = position_L[-1] - (length - 1)
        if any(ends_P):
            assert ends_P.count(True) == 1
            assert 1 <= size < num_targets
            assert target_P[size] == start + size - 1, "a hole ends after its last token"
            # With nothing behind the hole there is nothing that a gap could shift.
            assert 1 <= drawn_gap <= gap or start + size == length
        else:
            assert drawn_gap == 0
            assert known > 0 or num_targets == 1
            size = next(
                (
                    s
                    for s in range(1, num_targets + 1)
                    if plain_hole(length, num_targets, start, s, 0)[1] == rank_L
                ),
                0,
            )
        assert (position_L, rank_L) == plain_hole(length, num_targets, start, size, drawn_gap)
        predicted = [index for index, ends in zip(target_P, ends_P, strict=True) if not ends]
        assert [rank_L[index] for index in predicted] == [
            rank for rank, ends in enumerate(ends_P, start=1) if not ends
        ]


def test_layouts_of_unknown_length_do_not_tell_the_length() -> None:
    gap, num_targets = 4, 6
    orders = holes(20_000, 12, gap=gap)
    sizes: dict[tuple[bytes, bytes], set[int]] = defaultdict(set)
    layouts: dict[tuple[int, int], set[int]] = defaultdict(set)
    for position_L, rank_L, target_P, ends_P in zip(
        orders.position_BL.numpy(),
        orders.rank_BL.numpy(),
        orders.target_BP.numpy(),
        orders.ends_hole_BP.numpy(),
        strict=True,
    ):
        size, start = int(ends_P.argmax()), int(target_P[0])
        context = position_L[rank_L == 0]
        after = context[context > start]
        if len(after):
            sizes[bytes(context), bytes([start])].add(size)
            layouts[start, int(after[0])].add(size)
    assert len(sizes) == len(layouts), (
        "what a hole sees must be a function of its start and the next token's position"
    )
    for (start, after), seen in layouts.items():
        wanted = {size for size in range(1, num_targets) if 1 <= after - start - size <= gap}
        assert seen == wanted


def test_known_and_unknown_holes_see_as_much() -> None:
    for known in (0.0, 1.0):
        orders = holes(200, 30, known=known)
        assert ((orders.rank_BL == 0).sum(dim=1) == 15).all()


def test_holes_start_everywhere_evenly() -> None:
    lanes = 10_000
    starts = holes(lanes, 20).target_BP[:, 0].numpy()
    shares = np.bincount(starts, minlength=11) / lanes
    assert len(shares) == 11
    assert np.abs(shares - 1 / 11).max() < SIGMAS * np.sqrt(1 / 11 * 10 / 11 / lanes)


def test_short_holes_are_frequent_and_long_ones_not_rare() -> None:
    lanes, num_targets = 20_000, 32
    orders = holes(lanes, 64)
    shares = np.bincount(orders.ends_hole_BP.long().argmax(dim=1).numpy(), minlength=num_targets)[1:] / lanes
    wanted = np.array(hole_weights(num_targets - 1))
    assert sum(wanted) == pytest.approx(1.0)
    assert wanted[0] > 0.1
    assert wanted.min() > 0.5 / num_targets
    assert (np.abs(shares - wanted) < SIGMAS * np.sqrt(wanted * (1 - wanted) / lanes)).all()


def test_the_share_of_known_lengths_is_the_configs() -> None:
    lanes = 4000
    share = 1 - holes(lanes, 40, known=0.3).ends_hole_BP.any(dim=1).double().mean().item()
    assert abs(share - 0.3) < SIGMAS * np.sqrt(0.3 * 0.7 / lanes)


def test_a_single_prediction_is_a_hole_of_known_length() -> None:
    config = ObjectiveConfig(target_share=0.01, known_length_share=0.0)
    assert config.num_targets(10) == 1
    assert config.extent(10) == 10
    orders = holes(50, 10, share=0.01)
    assert not orders.ends_hole_BP.any()
    assert set(orders.target_BP[:, 0].tolist()) == set(range(10))


@given(
    length=st.integers(2, 40),
    known=st.sampled_from([0.0, 0.5, 1.0]),
    gap=st.integers(1, 9),
    seed=st.integers(0, 10**6),
)
def test_an_autoregressive_model_predicts_both_sides_and_then_the_hole(
    length: int, known: float, gap: int, seed: int
) -> None:
    config = ObjectiveConfig(
        target_share=1.0,
        spans=0,
        infill=0,
        fill_in_the_middle=1,
        known_length_share=known,
        max_gap_tokens=gap,
    )
    draws = DrawTable(INFILL_DRAWS, CPU).draws(seed, 0, range(6))
    orders = FillInTheMiddleOrders(config, length, CPU).orders(draws)
    content, targets = orders.layouts(torch.zeros_like(orders.rank_BL), None, config.extent(length))
    assert int(content.position_BX.max()) < content.extent
    for lane in range(6):
        in_order = orders.rank_BL[lane].argsort().tolist()
        assert sorted(orders.rank_BL[lane].tolist()) == list(range(1, length + 1))
        breaks = [number for number in range(1, length) if in_order[number] < in_order[number - 1]]
        predicted, ends = orders.target_BP[lane].tolist(), orders.ends_hole_BP[lane].tolist()
        target_ranks = targets.rank_BX[lane].tolist()
        assert target_ranks == sorted(set(target_ranks))
        if any(ends):
            assert ends == [False] * (length - 1) + [True]
            left_out = set(range(length)) - set(predicted[:-1])
            assert len(left_out) == 1
            assert predicted[-1] == in_order[-1]
            num_around = in_order.index(left_out.pop()) + 1
            assert predicted[:-1] == in_order[: num_around - 1] + in_order[num_around:]
            assert in_order[num_around:] == list(range(in_order[num_around], in_order[-1] + 1))
            after = [index for index in range(length) if index > in_order[-1]]
            moved = [int(orders.position_BL[lane, index]) - index for index in after]
            assert set(moved) <= set(range(1, gap + 1))
            assert len(set(moved)) <= 1
        else:
            assert predicted == in_order
            assert orders.position_BL[lane].tolist() == list(range(length))
        assert len(breaks) <= 1, "text around the hole, then the hole"


def test_autoregressive_holes_are_everywhere_and_their_ends_are_predicted() -> None:
    config = ObjectiveConfig(
        target_share=1.0, spans=0, infill=0, fill_in_the_middle=1, known_length_share=0.0
    )
    draws = DrawTable(INFILL_DRAWS, CPU).draws(0, 0, range(4000))
    orders = FillInTheMiddleOrders(config, 16, CPU).orders(draws)
    assert orders.ends_hole_BP.sum(dim=1).tolist() == [1] * 4000
    last_of_hole = np.bincount(orders.target_BP[:, -1].numpy(), minlength=16)
    assert (last_of_hole > 40).all()
