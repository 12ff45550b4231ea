"""Orders: what is predicted, what sees what, and that keys decide everything."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pretrain.objective import left_to_right
from pretrain.orders import (
    ObjectiveConfig,
    infill_order,
    lane_order,
    left_to_right_order,
    spans_order,
)
from pretrain.randomness import keyed_generator


@given(
    seed=st.integers(0, 1000),
    length=st.integers(1, 300),
    share=st.floats(0.01, 1.0),
    kind=st.sampled_from(["spans", "left_to_right", "infill"]),
)
def test_every_order_predicts_exactly_p_tokens_in_a_strict_order(
    seed: int, length: int, share: float, kind: str
) -> None:
    weights = {"spans": 0.0, "left_to_right": 0.0, "infill": 0.0, kind: 1.0}
    config = ObjectiveConfig(target_share=share, **weights)
    order = lane_order(config, seed, step=3, lane=2, length=length)
    assert len(order.target_P) == config.num_targets(length) == len(set(order.target_P.tolist()))
    assert order.rank_L[order.target_P].tolist() == list(range(1, len(order.target_P) + 1))
    context = np.setdiff1d(np.arange(length), order.target_P)
    if kind == "left_to_right":
        first, last = order.target_P[0], order.target_P[-1]
        assert (order.rank_L[:first] == 0).all()
        assert (np.diff(order.rank_L[first:]) == 1).all(), (
            "what follows the cut must be strictly left to right"
        )
        assert last - first + 1 == len(order.target_P)
    else:
        assert (order.rank_L[context] == 0).all()


def test_the_order_depends_on_seed_step_and_lane_only() -> None:
    config = ObjectiveConfig()

    def ranks(seed: int, step: int, lane: int) -> bytes:
        return lane_order(config, seed, step, lane, 64).rank_L.tobytes()

    assert ranks(1, 2, 3) == ranks(1, 2, 3)
    assert len({ranks(1, 2, 3), ranks(2, 2, 3), ranks(1, 3, 3), ranks(1, 2, 4), ranks(1, 3, 2)}) == 5


def test_spans_are_short_runs_in_random_order() -> None:
    order = spans_order(keyed_generator(0, "test"), 4096, 2048, 5)
    breaks = np.flatnonzero(np.diff(order.target_P) != 1)
    run_tokens = np.diff(np.concatenate([[-1], breaks, [len(order.target_P) - 1]]))
    # E[n] = 5 / H(5) = 2.19 for p(n) ~ 1/n; neighbours that happen to follow each other merge, rarely.
    assert 2.0 < run_tokens.mean() < 2.6
    assert (np.diff(order.target_P[breaks]) < 0).mean() > 0.3, "spans must not go left to right"


def test_cuts_and_holes_are_everywhere() -> None:
    starts = {kind: [] for kind in ("cut", "hole")}
    for number in range(400):
        generator = keyed_generator(number, "test")
        starts["cut"].append(int(left_to_right_order(generator, 20, 5).target_P[0]))
        starts["hole"].append(int(infill_order(generator, 20, 5).target_P[0]))
    for places in starts.values():
        assert set(places) == set(range(16))


def test_plain_left_to_right_predicts_everything() -> None:
    places = left_to_right(torch.zeros(2, 5, dtype=torch.int64))
    assert places.rank_BX.tolist() == [[1, 2, 3, 4, 5]] * 2
    assert places.position_BX.tolist() == [[0, 1, 2, 3, 4]] * 2
    assert places.rank_BX.dtype == places.position_BX.dtype == torch.int64


def test_a_mixture_of_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match="one of spans"):
        ObjectiveConfig(spans=0, left_to_right=0, infill=0)
