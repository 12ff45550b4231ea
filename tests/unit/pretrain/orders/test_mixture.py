"""Mixtures: every kind in its share, exactly P predictions in a strict order, and keys decide everything."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pretrain.config import PretrainConfig
from pretrain.orders.config import ObjectiveConfig
from pretrain.orders.order import Orders
from pretrain.orders.sampling import OrderMixture
from pretrain.orders.words import WordPieces

CPU = torch.device("cpu")
VOCABULARY = 50
KINDS = ("spans", "left_to_right", "infill")


def words() -> WordPieces:
    generator = torch.Generator().manual_seed(0)
    first_V, last_V = (torch.rand(2, VOCABULARY, generator=generator) < 0.7).unbind()
    return WordPieces(first_V, last_V)


def some_tokens(lanes: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(VOCABULARY, (lanes, length), generator=torch.Generator().manual_seed(seed))


def only(kind: str, **changes: object) -> ObjectiveConfig:
    return ObjectiveConfig.model_validate({name: float(name == kind) for name in KINDS} | changes)


def made(config: ObjectiveConfig, tokens_BL: torch.Tensor, seed: int, step: int, lanes: range) -> Orders:
    return OrderMixture(config, tokens_BL.shape[1], words(), CPU).orders(tokens_BL, seed, step, lanes)


def parts(orders: Orders) -> list[torch.Tensor]:
    return [orders.position_BL, orders.rank_BL, orders.target_BP, orders.ends_hole_BP]


@given(
    seed=st.integers(0, 1000),
    length=st.integers(1, 120),
    share=st.floats(0.01, 1.0),
    kind=st.sampled_from([*KINDS, "all"]),
    max_span_words=st.integers(1, 12),
    span_unit=st.sampled_from(["word", "token"]),
    order_in_spans=st.sampled_from(["random", "left_to_right"]),
)
def test_every_order_predicts_exactly_p_distinct_targets_in_a_strict_order(
    seed: int, length: int, share: float, kind: str, **spans: object
) -> None:
    config = only(kind, target_share=share, **spans) if kind != "all" else ObjectiveConfig(target_share=share)
    num_targets = config.num_targets(length)
    tokens_BL = some_tokens(4, length, seed)
    orders = made(config, tokens_BL, seed, step=3, lanes=range(2, 6))
    content, targets = orders.layouts(torch.zeros_like(tokens_BL), None, config.extent(length))
    assert targets.rank_BX.tolist() == [list(range(1, num_targets + 1))] * 4
    assert int(targets.position_BX.max()) < targets.extent == config.extent(length)
    assert int(content.position_BX.max()) < content.extent
    assert (content.position_BX.diff(dim=1) > 0).all()
    for lane in range(4):
        assert len(set(targets.position_BX[lane].tolist())) == num_targets
        assert int((orders.rank_BL[lane] == 0).sum()) <= length - num_targets
        late = orders.rank_BL[lane][orders.rank_BL[lane] > 0]
        assert len(set(late.tolist())) == len(late), (
            "tokens after the context must not see each other both ways"
        )
        predicted = orders.target_BP[lane][~orders.ends_hole_BP[lane]]
        ranks = torch.arange(1, num_targets + 1)[~orders.ends_hole_BP[lane]]
        assert torch.equal(orders.rank_BL[lane][predicted], ranks)


@given(seed=st.integers(0, 1000), length=st.integers(1, 60), share=st.floats(0.01, 1.0))
def test_after_a_cut_everything_goes_left_to_right(seed: int, length: int, share: float) -> None:
    config = only("left_to_right", target_share=share)
    orders = made(config, some_tokens(3, length), seed, 0, range(3))
    for rank_L, target_P in zip(orders.rank_BL.tolist(), orders.target_BP.tolist(), strict=True):
        cut = target_P[0]
        assert rank_L == [0] * cut + list(range(1, length - cut + 1))
        assert target_P == list(range(cut, cut + config.num_targets(length)))


def test_cuts_are_everywhere() -> None:
    orders = made(only("left_to_right", target_share=0.25), some_tokens(400, 20), 0, 0, range(400))
    assert set(orders.target_BP[:, 0].tolist()) == set(range(16))


def test_a_share_of_one_predicts_every_token_in_a_random_permutation() -> None:
    orders = made(only("spans", target_share=1.0), some_tokens(8, 64), 0, 0, range(8))
    assert (orders.target_BP.sort(dim=1).values == torch.arange(64)).all()
    assert (orders.target_BP.diff(dim=1) == 1).double().mean() < 0.1


def test_kinds_come_in_their_shares() -> None:
    lanes = 4000
    config = ObjectiveConfig(spans=1, left_to_right=2, infill=5, known_length_share=0.0)
    orders = made(config, some_tokens(lanes, 64), 0, 0, range(lanes))
    is_infill_B = orders.ends_hole_BP.any(dim=1)
    is_spans_B = (orders.target_BP.diff(dim=1) < 0).any(dim=1)
    shares = np.array([is_spans_B.double().mean(), is_infill_B.double().mean()])
    assert np.abs(shares - [1 / 8, 5 / 8]).max() < 0.04
    assert not (is_infill_B & is_spans_B).any()


def test_other_kinds_of_holes_come_in_their_shares() -> None:
    lanes = 4000
    config = ObjectiveConfig(spans=0, left_to_right=1, infill=0, holes=3, known_length_share=0.0)
    several = made(config, some_tokens(lanes, 64), 0, 0, range(lanes)).ends_hole_BP.sum(dim=1)
    assert abs((several >= 2).double().mean() - 3 / 4) < 0.04
    config = ObjectiveConfig(
        target_share=1.0, spans=0, left_to_right=1, infill=0, fill_in_the_middle=1, known_length_share=0.0
    )
    middle = made(config, some_tokens(lanes, 64), 0, 0, range(lanes)).ends_hole_BP.sum(dim=1)
    assert abs((middle == 1).double().mean() - 1 / 2) < 0.04
    assert int(middle.max()) == 1


def test_a_lane_has_the_same_order_alone_in_any_batch_and_in_any_batch_order() -> None:
    config, tokens_BL = ObjectiveConfig(), some_tokens(12, 64)
    together = parts(made(config, tokens_BL, 5, 9, range(4, 16)))
    mixture = OrderMixture(config, 64, words(), CPU)
    mixture.orders(tokens_BL, 5, 10, range(4, 16))  # what was made before must not matter
    for lane in reversed(range(12)):
        alone = parts(mixture.orders(tokens_BL[lane : lane + 1], 5, 9, range(4 + lane, 5 + lane)))
        first = lane // 6 * 6
        halves = parts(mixture.orders(tokens_BL[first : first + 6], 5, 9, range(4 + first, 10 + first)))
        for whole, own, half in zip(together, alone, halves, strict=True):
            assert torch.equal(whole[lane], own[0])
            assert torch.equal(whole[lane], half[lane % 6])


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_depends_on_seed_step_and_lane(kind: str) -> None:
    tokens_BL = some_tokens(1, 64)

    def ranks(seed: int, step: int, lane: int) -> bytes:
        return made(only(kind), tokens_BL, seed, step, range(lane, lane + 1)).rank_BL.numpy().tobytes()

    assert ranks(1, 2, 3) == ranks(1, 2, 3)
    assert len({ranks(1, 2, 3), ranks(2, 2, 3), ranks(1, 3, 3), ranks(1, 2, 4), ranks(1, 3, 2)}) == 5


def test_only_spans_of_words_look_at_the_tokens() -> None:
    one, other = some_tokens(64, 64, seed=1), some_tokens(64, 64, seed=2)

    def same(config: ObjectiveConfig) -> bool:
        both = [parts(made(config, tokens_BL, 0, 0, range(64))) for tokens_BL in (one, other)]
        return all(map(torch.equal, *both))

    assert not same(only("spans"))
    assert same(only("spans", span_unit="token"))
    assert same(only("infill"))


def test_a_mixture_of_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match="one of spans"):
        ObjectiveConfig(spans=0, left_to_right=0, infill=0)


def test_learned_positions_must_reach_over_the_gaps() -> None:
    values = {
        "num_steps": 1000,
        "segment_tokens": 500,
        "model": {"memory_tokens": 0, "positions": {"kind": "absolute_learned", "max_positions": 512}},
    }
    with pytest.raises(ValidationError, match="gaps of up to 32 tokens need 532 positions"):
        PretrainConfig.model_validate(values)
    for fitting in ({"max_gap_tokens": 12}, {"infill": 0}, {"known_length_share": 1}):
        PretrainConfig.model_validate(values | {"objective": fitting})
